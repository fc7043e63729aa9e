{{/* The names of our resources, as JSON. */}}
{{- define "gangshare.resources" -}}
{{- $usual := ternary "aliyun.com/gpu-mem" "gangshare.io/gpu-mem" (eq .Values.layout "gpushare") }}
{{- merge (dict "mem" (.Values.resourceNames.mem | default $usual)) .Values.resourceNames | toJson }}
{{- end }}

{{/* The schedulerNames of pods that come to the extender, as JSON. */}}
{{- define "gangshare.schedulers" -}}
{{- if has .Values.layout (list "shared" "gpushare") }}
  {{- list "default-scheduler" | toJson }}
{{- else if .Values.scheduler.operators }}
  {{- concat .Values.scheduler.names (list "volcano" "kube-batch") | uniq | toJson }}
{{- else }}
  {{- .Values.scheduler.names | toJson }}
{{- end }}
{{- end }}

{{/* The memory unit in MiB. */}}
{{- define "gangshare.unitMib" -}}
{{- $unit := .Values.memoryUnit | toString }}
{{- $number := regexFind "^[0-9]+" $unit | default "1" | int }}
{{- ternary (mul $number 1024) $number (hasSuffix "GiB" $unit) }}
{{- end }}

{{/* The options that all processes share, if they are not the usual ones, as JSON. */}}
{{- define "gangshare.sharedOptions" -}}
{{- $options := dict }}
{{- $values := .Values }}
{{- range $option, $pair := dict
  "resource-mem" (list $values.resourceNames.mem "")
  "resource-slice" (list $values.resourceNames.slice "gangshare.io/gpu-slice")
  "resource-whole" (list $values.resourceNames.whole "nvidia.com/gpu")
  "resource-shared" (list $values.resourceNames.shared "nvidia.com/gpu.shared")
  "memory-unit" (list (toString $values.memoryUnit) "GiB")
  "slices-per-gpu" (list (int $values.slicesPerGpu) 100) }}
  {{- if ne (toString (first $pair)) (toString (last $pair)) }}
    {{- $_ := set $options $option (first $pair) }}
  {{- end }}
{{- end }}
{{- if eq .Values.layout "gpushare" }}{{- $_ := set $options "gpushare" true }}{{- end }}
{{- toJson $options }}
{{- end }}

{{/* An image. Takes root, image and a tag for an image without one. */}}
{{- define "gangshare.image" -}}
{{- $registry := .root.Values.global.imageRegistry }}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") }}
{{- if .image.digest }}
  {{- printf "%s@%s" $name .image.digest }}
{{- else }}
  {{- printf "%s:%s" $name (.image.tag | default .tag | toString) }}
{{- end }}
{{- end }}

{{/* The workload that is ready last. */}}
{{- define "gangshare.awaited" -}}
{{- get (dict "own" "deployment/gangshare-scheduler" "standalone" "daemonset/gangshare-plugin") .Values.layout | default "daemonset/gangshare-extender" }}
{{- end }}
