{{/* The expressions of policies that depend on the values: by the name of the object, then of the variable or condition. */}}
{{- define "gangshare.expressions" -}}
{{- $names := include "gangshare.resources" . | fromJson }}
{{- $all := list $names.mem $names.slice $names.whole $names.shared }}
{{- $usual := list "gangshare.io/gpu-mem" "gangshare.io/gpu-slice" "nvidia.com/gpu" "nvidia.com/gpu.shared" "aliyun.com/gpu-mem" }}
{{- $schedulers := include "gangshare.strings" (include "gangshare.schedulers" . | fromJsonArray) }}
{{- $ours := dict "of-our-scheduler" (printf "object.spec.schedulerName in %s" $schedulers) }}
{{- $plugin := dict }}
{{- if eq .Values.layout "gpushare" }}
  {{- $plugin = dict "prefixes" "['gangshare.io/', 'ALIYUN_COM_GPU_MEM_']" "counts" "['aliyun.com/gpu-count']" }}
{{- end }}
{{- $unit := include "gangshare.unitMib" . }}
{{- dict
  "gangshare-keys" (dict
    "schedulers" $schedulers
    "resources" (include "gangshare.strings" $all)
    "unitMib" $unit
    "rewrites" (toString .Values.policies.memoryUnits))
  "gangshare-memory-units" (dict "unitMib" $unit "memory" (squote $names.mem))
  "gangshare-void" (dict "asked" (include "gangshare.strings" (concat $usual $all | uniq)))
  "gangshare-plugin" $plugin
  "gangshare-plan" $ours
  "gangshare-webhook" $ours
| toJson }}
{{- end }}

{{/* A list of strings in CEL. */}}
{{- define "gangshare.strings" -}}
['{{ join "', '" . }}']
{{- end }}

{{/* Puts these expressions into an object, in place. Takes root and object. */}}
{{- define "gangshare.express" -}}
{{- $said := get (include "gangshare.expressions" .root | fromJson) .object.metadata.name | default dict }}
{{- $spec := .object.spec | default dict }}
{{- $named := concat ($spec.variables | default list) ($spec.matchConditions | default list) }}
{{- range .object.webhooks }}
  {{- $named = concat $named (.matchConditions | default list) }}
{{- end }}
{{- range $named }}
  {{- if hasKey $said .name }}{{- $_ := set . "expression" (get $said .name) }}{{- end }}
{{- end }}
{{- end }}

{{/* The version of MutatingAdmissionPolicies that this cluster has. */}}
{{- define "gangshare.mutatingVersion" -}}
{{- $minor := include "gangshare.minor" . | int }}
{{- if lt $minor 34 }}
  {{- fail (printf "gate: policy, policies.void and policies.memoryUnits need Kubernetes 1.34 or later, this cluster has %s: take gate: webhook, or leave them off" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- ternary "admissionregistration.k8s.io/v1beta1" "admissionregistration.k8s.io/v1" (lt $minor 36) }}
{{- end }}

{{- define "gangshare.minor" -}}
{{- regexFind "[0-9]+" .Capabilities.KubeVersion.Minor }}
{{- end }}
