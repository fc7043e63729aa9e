{{/* The plugin's DaemonSet by the values, changed in place. Takes root and object. */}}
{{- define "gangshare.plugin" -}}
{{- $root := .root }}
{{- $values := .root.Values.plugin }}
{{- $template := .object.spec.template }}
{{- $container := first $template.spec.containers }}
{{- $_ := set $container "args" (include "gangshare.args" (dict "words" $container.args "options" (include "gangshare.pluginOptions" $root | fromJson)) | fromJsonArray) }}
{{- include "gangshare.gpuNode" (dict "root" $root "template" $template) }}
{{- include "gangshare.pod" (dict "root" $root "template" $template "values" $values) }}
{{- include "gangshare.container" (dict "root" $root "container" $container "image" $values.image "tag" $root.Chart.AppVersion "values" $values) }}
{{- range $volume := $template.spec.volumes }}
  {{- $_ := set $volume.hostPath "path" ($volume.hostPath.path | replace "/var/lib/kubelet" $root.Values.kubeletRootDir) }}
{{- end }}
{{- $more := include "gangshare.pluginVolumes" $root | fromYaml }}
{{- $_ := set $template.spec "volumes" (concat $template.spec.volumes ($more.volumes | default list) $values.extraVolumes) }}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts ($more.volumeMounts | default list) $values.extraVolumeMounts) }}
{{- if $root.Values.dcgmExporter.enabled }}
  {{- range $container.volumeMounts }}
    {{- if eq .name "pod-resources" }}{{- $_ := set . "readOnly" false }}{{- end }}
  {{- end }}
{{- end }}
{{- if eq $values.isolation.mode "library" }}{{- $_ := set $template.spec "hostPID" true }}{{- end }}
{{- if $values.migMonitor }}
  {{- $_ := set $container "env" (append $container.env (dict "name" "NVIDIA_MIG_MONITOR_DEVICES" "value" "all")) }}
  {{- $_ := set $container.securityContext.capabilities "add" (list "SYS_ADMIN") }}
  {{- $_ := unset $container.securityContext "allowPrivilegeEscalation" }}
{{- end }}
{{- with $values.updateStrategy }}{{- $_ := set $.object.spec "updateStrategy" . }}{{- end }}
{{- end }}

{{/* The plugin's options by the values, as JSON. */}}
{{- define "gangshare.pluginOptions" -}}
{{- $values := .Values.plugin }}
{{- $options := include "gangshare.sharedOptions" . | fromJson }}
{{- with .Values.fake.profile }}{{- $_ := set $options "fake" . }}{{- end }}
{{- if eq .Values.layout "standalone" }}{{- $_ := set $options "standalone" true }}{{- end }}
{{- if ne $values.deviceListStrategy "envvar" }}
  {{- $_ := set $options "device-list-strategy" $values.deviceListStrategy }}
{{- end }}
{{- if ne $values.migStrategy "none" }}{{- $_ := set $options "mig-strategy" $values.migStrategy }}{{- end }}
{{- if ne $values.isolation.mode "off" }}
  {{- $_ := set $options "isolation" $values.isolation.mode }}
{{- end }}
{{- if has $values.isolation.mode (list "auto" "driver") }}
  {{- $_ := set $options "host-root" "/host" }}
{{- end }}
{{- if eq $values.isolation.mode "library" }}
  {{- $_ := set $options "library-path" "/usr/local/vgpu/libvgpu.so" }}
  {{- $_ := set $options "library-dir" "/var/lib/gangshare/library" }}
{{- end }}
{{- if $values.isolation.limitsHelper }}
  {{- $_ := set $options "limits-socket" "/run/gangshare/limits/limits.sock" }}
{{- end }}
{{- if $values.migDynamic }}
  {{- $_ := set $options "partitioner-socket" "/run/gangshare/partitioner/partitioner.sock" }}
{{- end }}
{{- if ne $values.isolation.onMismatch "report" }}
  {{- $_ := set $options "on-isolation-mismatch" $values.isolation.onMismatch }}
{{- end }}
{{- if .Values.autoscaler.startupTaint }}
  {{- $_ := set $options "startup-taint" "startup-taint.cluster-autoscaler.kubernetes.io/gangshare" }}
{{- end }}
{{- if .Values.mps.enabled }}{{- $_ := set $options "mps-dir" "/run/gangshare/mps" }}{{- end }}
{{- if .Values.dcgmExporter.enabled }}
  {{- $_ := set $options "serve-pod-resources" "/var/lib/kubelet/pod-resources/gangshare.sock" }}
{{- end }}
{{- mergeOverwrite $options $values.args | toJson }}
{{- end }}

{{/* Volumes of the plugin, and where they are mounted, by the values. */}}
{{- define "gangshare.pluginVolumes" -}}
{{- $strategy := .Values.plugin.deviceListStrategy }}
{{- $cdi := hasPrefix "cdi-" $strategy }}
{{- $isolation := .Values.plugin.isolation }}
{{- $library := eq $isolation.mode "library" }}
{{- $limits := has $isolation.mode (list "auto" "driver") }}
volumes:
{{- if or $cdi (eq $strategy "volume-mounts") }}
  - {name: all-gpus, hostPath: {path: /dev/null, type: CharDevice}}
{{- end }}
{{- if $cdi }}
  - {name: cdi-static, hostPath: {path: /etc/cdi, type: DirectoryOrCreate}}
  - {name: cdi-dynamic, hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}}
{{- end }}
{{- if or $limits $library }}
  - {name: cgroup, hostPath: {path: /sys/fs/cgroup, type: Directory}}
{{- end }}
{{- if $limits }}
  - {name: host-usr, hostPath: {path: /usr, type: Directory}}
{{- end }}
{{- if $library }}
  - {name: library, hostPath: {path: /usr/local/vgpu, type: DirectoryOrCreate}}
  - {name: regions, hostPath: {path: /var/lib/gangshare/library, type: DirectoryOrCreate}}
{{- end }}
{{- if $isolation.limitsHelper }}
  - {name: limits, hostPath: {path: /run/gangshare/limits, type: DirectoryOrCreate}}
{{- end }}
{{- if .Values.plugin.migDynamic }}
  - {name: partitioner, hostPath: {path: /run/gangshare/partitioner, type: DirectoryOrCreate}}
{{- end }}
{{- if .Values.mps.enabled }}
  - {name: mps, hostPath: {path: /run/gangshare/mps, type: DirectoryOrCreate}}
{{- end }}
volumeMounts:
{{- if or $cdi (eq $strategy "volume-mounts") }}
  - {name: all-gpus, mountPath: /var/run/nvidia-container-devices/all}
{{- end }}
{{- if $cdi }}
  - {name: cdi-static, mountPath: /etc/cdi, readOnly: true}
  - {name: cdi-dynamic, mountPath: /var/run/cdi, readOnly: true}
{{- end }}
{{- if or $limits $library }}
  - {name: cgroup, mountPath: /sys/fs/cgroup, readOnly: true}
{{- end }}
{{- if $limits }}
  - {name: host-usr, mountPath: /host/usr, readOnly: true}
{{- end }}
{{- if $library }}
  - {name: library, mountPath: /usr/local/vgpu, readOnly: true}
  - {name: regions, mountPath: /var/lib/gangshare/library, mountPropagation: HostToContainer}
{{- end }}
{{- if $isolation.limitsHelper }}
  - {name: limits, mountPath: /run/gangshare/limits, readOnly: true}
{{- end }}
{{- if .Values.plugin.migDynamic }}
  - {name: partitioner, mountPath: /run/gangshare/partitioner, readOnly: true}
{{- end }}
{{- if .Values.mps.enabled }}
  - {name: mps, mountPath: /run/gangshare/mps}
{{- end }}
{{- end }}

{{/* Where a pod that sees GPUs runs, put into its template in place; real GPUs come by the environment. Takes root and template. */}}
{{- define "gangshare.gpuNode" -}}
{{- $values := .root.Values }}
{{- $real := not $values.fake.profile }}
{{- $pod := .template.spec }}
{{- $runtime := $values.plugin.runtimeClassName }}
{{- if and (not $runtime) $real (ne $values.layout "gpushare") }}{{- $runtime = $values.runtimeClass.name }}{{- end }}
{{- if and $runtime (ne $runtime "-") }}
  {{- $_ := set $pod "runtimeClassName" $runtime }}
{{- else }}
  {{- $_ := unset $pod "runtimeClassName" }}
{{- end }}
{{- $usual := ternary (dict "gpushare" "true") (dict "nvidia.com/gpu.present" "true") (eq $values.layout "gpushare") }}
{{- $selector := $values.plugin.nodeSelector | default (ternary $usual (dict) $real) }}
{{- if $selector }}
  {{- $_ := set $pod "nodeSelector" $selector }}
{{- else }}
  {{- $_ := unset $pod "nodeSelector" }}
{{- end }}
{{- range $pod.containers }}
  {{- $env := list }}
  {{- range .env }}
    {{- if not (has .name (list "NVIDIA_VISIBLE_DEVICES" "NVIDIA_DRIVER_CAPABILITIES")) }}{{- $env = append $env . }}{{- end }}
  {{- end }}
  {{- if $real }}
    {{- $env = concat $env (list (dict "name" "NVIDIA_VISIBLE_DEVICES" "value" "all") (dict "name" "NVIDIA_DRIVER_CAPABILITIES" "value" "utility")) }}
  {{- end }}
  {{- $_ := set . "env" $env }}
{{- end }}
{{- end }}

{{/* The DaemonSet that measures by the values, changed in place. Takes root and object. */}}
{{- define "gangshare.usage" -}}
{{- $root := .root }}
{{- $values := .root.Values.usage }}
{{- $template := .object.spec.template }}
{{- $container := first $template.spec.containers }}
{{- $options := include "gangshare.sharedOptions" $root | fromJson }}
{{- with $root.Values.fake.profile }}{{- $_ := set $options "fake" . }}{{- end }}
{{- if $values.overuseEvents }}{{- $_ := set $options "overuse-events" true }}{{- end }}
{{- with $values.idleEventsSeconds }}{{- $_ := set $options "idle-events" . }}{{- end }}
{{- with $values.markIdleSeconds }}
  {{- $_ := set $container "env" (append $container.env (dict "name" "GANGSHARE_MARK_IDLE" "value" (toString .))) }}
{{- end }}
{{- if eq $root.Values.plugin.isolation.mode "library" }}
  {{- $_ := set $container "env" (append $container.env (dict "name" "GANGSHARE_LIBRARY_DIR" "value" "/var/lib/gangshare/library")) }}
  {{- $_ := set $template.spec "volumes" (append $template.spec.volumes (dict "name" "regions" "hostPath" (dict "path" "/var/lib/gangshare/library" "type" "DirectoryOrCreate"))) }}
  {{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "regions" "mountPath" "/var/lib/gangshare/library" "readOnly" true "mountPropagation" "HostToContainer")) }}
{{- end }}
{{- with mergeOverwrite $options $values.args }}
  {{- $_ := set $container "args" (include "gangshare.args" (dict "words" list "options" .) | fromJsonArray) }}
{{- end }}
{{- include "gangshare.gpuNode" (dict "root" $root "template" $template) }}
{{- include "gangshare.pod" (dict "root" $root "template" $template "values" $values) }}
{{- include "gangshare.container" (dict "root" $root "container" $container "image" $root.Values.plugin.image "tag" $root.Chart.AppVersion "values" $values) }}
{{- end }}

{{/* The labels of the plugins of all nodes, as a selector in JSON. */}}
{{- define "gangshare.pluginPods" -}}
{{- $names := list "gangshare-plugin" }}
{{- range keys .Values.plugin.configs | sortAlpha }}{{- $names = append $names (printf "gangshare-plugin-%s" .) }}{{- end }}
{{- if .Values.plugin.configs }}
  {{- dict "matchExpressions" (list (dict "key" "app.kubernetes.io/name" "operator" "In" "values" $names)) | toJson }}
{{- else }}
  {{- dict "matchLabels" (dict "app.kubernetes.io/name" "gangshare-plugin") | toJson }}
{{- end }}
{{- end }}

{{/*
The DaemonSet of a configuration on the nodes whose label names it, changed in place. Takes root, object and the
configuration's name. Without a name: of all other nodes.
*/}}
{{- define "gangshare.configured" -}}
{{- $label := "gangshare.io/plugin-config" }}
{{- $template := .object.spec.template }}
{{- if .root.Values.plugin.configs }}{{- /* a plugin starts when that of the former label has ended */}}
  {{- $affinity := deepCopy ($template.spec.affinity | default dict) }}
  {{- $apart := $affinity.podAntiAffinity | default dict }}
  {{- $ours := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (include "gangshare.pluginPods" .root | fromJson) }}
  {{- $_ := set $apart "requiredDuringSchedulingIgnoredDuringExecution" (append ($apart.requiredDuringSchedulingIgnoredDuringExecution | default list) $ours) }}
  {{- $_ := set $affinity "podAntiAffinity" $apart }}
  {{- $_ := set $template.spec "affinity" $affinity }}
{{- end }}
{{- if .name }}
  {{- $ours := printf "gangshare-plugin-%s" .name }}
  {{- $_ := set .object.metadata "name" $ours }}
  {{- range list .object.metadata.labels .object.spec.selector.matchLabels $template.metadata.labels }}
    {{- $_ := set . "app.kubernetes.io/name" $ours }}
  {{- end }}
  {{- $_ := set $template.spec "nodeSelector" (merge (dict $label .name) ($template.spec.nodeSelector | default dict)) }}
{{- else if .root.Values.plugin.configs }}
  {{- $other := dict "key" $label "operator" "NotIn" "values" (keys .root.Values.plugin.configs | sortAlpha) }}
  {{- $affinity := deepCopy ($template.spec.affinity | default dict) }}
  {{- $ofNodes := $affinity.nodeAffinity | default dict }}
  {{- $required := $ofNodes.requiredDuringSchedulingIgnoredDuringExecution | default dict }}
  {{- $terms := $required.nodeSelectorTerms | default (list (dict)) }}
  {{- range $terms }}
    {{- $_ := set . "matchExpressions" (append (.matchExpressions | default list) $other) }}
  {{- end }}
  {{- $_ := set $ofNodes "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
  {{- $_ := set $affinity "nodeAffinity" $ofNodes }}
  {{- $_ := set $template.spec "affinity" $affinity }}
{{- end }}
{{- end }}

{{/* The values of the plugin on nodes of each configuration, those without one first, as a JSON list. */}}
{{- define "gangshare.everyPlugin" -}}
{{- $every := list .Values.plugin }}
{{- range .Values.plugin.configs }}
  {{- $every = append $every (mergeOverwrite (deepCopy $.Values.plugin) (. | default dict)) }}
{{- end }}
{{- $every | toJson }}
{{- end }}

{{/* Not empty if nodes of some configuration have the helper that sets limits. */}}
{{- define "gangshare.limitsHelper" -}}
{{- range include "gangshare.everyPlugin" . | fromJsonArray }}{{- if .isolation.limitsHelper }}yes{{- end }}{{- end }}
{{- end }}

{{/* Not empty if nodes of some configuration have the partitioner. */}}
{{- define "gangshare.migDynamic" -}}
{{- range include "gangshare.everyPlugin" . | fromJsonArray }}{{- if .migDynamic }}yes{{- end }}{{- end }}
{{- end }}

{{/* Keeps a helper to the nodes of the configurations that have it, if the usual nodes do not. Takes root,
     template, and has: migDynamic or limitsHelper. */}}
{{- define "gangshare.helped" -}}
{{- $usual := .root.Values.plugin }}
{{- $names := list }}
{{- $dynamic := eq .has "migDynamic" }}
{{- range $name, $config := $usual.configs }}
  {{- $all := mergeOverwrite (deepCopy $usual) ($config | default dict) }}
  {{- if (ternary $all.migDynamic $all.isolation.limitsHelper $dynamic) }}{{- $names = append $names $name }}{{- end }}
{{- end }}
{{- if not (ternary $usual.migDynamic $usual.isolation.limitsHelper $dynamic) }}
  {{- $expressions := list (dict "key" "gangshare.io/plugin-config" "operator" "In" "values" $names) }}
  {{- $required := dict "nodeSelectorTerms" (list (dict "matchExpressions" $expressions)) }}
  {{- $_ := set .template.spec "affinity" (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" $required)) }}
{{- end }}
{{- end }}
