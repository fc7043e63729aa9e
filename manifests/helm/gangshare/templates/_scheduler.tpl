{{/* The Deployment of kube-scheduler and extender by the values, changed in place. Takes root, object and config. */}}
{{- define "gangshare.deployment" -}}
{{- $root := .root }}
{{- $values := .root.Values }}
{{- $template := .object.spec.template }}
{{- $_ := set .object.spec "replicas" $values.scheduler.replicas }}
{{- $_ := set $template.metadata "annotations" (dict "checksum/config" (sha256sum .config)) }}
{{- include "gangshare.pod" (dict "root" $root "template" $template "values" $values.scheduler) }}
{{- $extender := first $template.spec.initContainers }}
{{- $options := dict "scheduler-names" (include "gangshare.schedulers" $root | fromJsonArray) }}
{{- if $values.scheduler.operators }}{{- $_ := set $options "conflicting-leases" "volcano-system/volcano" }}{{- end }}
{{- if eq $values.gate "webhook" }}
  {{- $_ := set $options "gate-webhook-listen" ":12348" }}
  {{- $_ := set $extender "ports" (append $extender.ports (dict "name" "gate" "containerPort" 12348)) }}
{{- end }}
{{- if $values.visibility.enabled }}
  {{- $_ := set $options "visibility-listen" ":12350" }}
  {{- $_ := set $extender "ports" (append $extender.ports (dict "name" "visibility" "containerPort" 12350)) }}
{{- end }}
{{- include "gangshare.extender" (dict "root" $root "container" $extender "options" $options) }}
{{- $scheduler := first $template.spec.containers }}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $root.Capabilities.KubeVersion.Version }}
{{- $ours := $values.scheduler.kubeScheduler }}
{{- include "gangshare.container" (dict "root" $root "container" $scheduler "image" $ours.image "tag" $version "values" $ours) }}
{{- end }}

{{/* The extender's container by the values, changed in place. Takes root, container and options of the layout. */}}
{{- define "gangshare.extender" -}}
{{- $values := .root.Values.extender }}
{{- $options := mergeOverwrite (include "gangshare.sharedOptions" .root | fromJson) .options }}
{{- with .root.Values.scheduler.leaderElection.renewDeadline }}
  {{- $_ := set $options "renew-deadline" (trimSuffix "s" .) }}
{{- end }}
{{- with .root.Values.autoscaler.provisioningClass }}{{- $_ := set $options "provisioning-class" . }}{{- end }}
{{- $options = mergeOverwrite $options $values.args }}
{{- $_ := set .container "args" (include "gangshare.args" (dict "words" .container.args "options" $options) | fromJsonArray) }}
{{- include "gangshare.container" (dict "root" .root "container" .container "image" $values.image "tag" .root.Chart.AppVersion "values" $values) }}
{{- end }}

{{/* kube-scheduler's configuration of layout own. */}}
{{- define "gangshare.ownConfig" -}}
{{- $names := include "gangshare.resources" . | fromJson }}
{{- $config := .Files.Get "base/scheduler/scheduler.yaml" | fromYaml }}
{{- $instances := list }}
{{- range (first (first $config.profiles).pluginConfig).args.ignoredResources }}
  {{- if hasPrefix "nvidia.com/mig-" . }}{{- $instances = append $instances . }}{{- end }}
{{- end }}
{{- $profiles := list }}
{{- range include "gangshare.schedulers" . | fromJsonArray }}
  {{- $profile := deepCopy (first $config.profiles) }}
  {{- $_ := set $profile "schedulerName" . }}
  {{- $_ := set (first $profile.pluginConfig).args "ignoredResources" (concat (list $names.mem $names.slice $names.whole $names.shared) $instances) }}
  {{- $profiles = append $profiles $profile }}
{{- end }}
{{- $_ := set $config "profiles" $profiles }}
{{- include "gangshare.finished" (dict "root" . "config" $config) }}
{{- end }}

{{/* kube-scheduler's configuration of the layouts shared and gpushare, to be put beside the cluster's scheduler. */}}
{{- define "gangshare.sharedConfig" -}}
{{- $names := include "gangshare.resources" . | fromJson }}
{{- $config := .Files.Get (printf "overlays/%s/scheduler.yaml" .Values.layout) | fromYaml }}
{{- $entry := first $config.extenders }}
{{- $given := ternary (list $names.mem) (list $names.mem $names.slice $names.whole $names.shared) (eq .Values.layout "gpushare") }}
{{- $managed := list }}
{{- range $given }}
  {{- $managed = append $managed (dict "name" . "ignoredByScheduler" (ne $.Values.layout "gpushare")) }}
{{- end }}
{{- range $entry.managedResources }}
  {{- if hasPrefix "nvidia.com/mig-" .name }}{{- $managed = append $managed . }}{{- end }}
{{- end }}
{{- $_ := set $entry "managedResources" $managed }}
{{- include "gangshare.finished" (dict "root" . "config" $config) }}
{{- end }}

{{/* A configuration with what the values say of it. Takes root and config. */}}
{{- define "gangshare.finished" -}}
{{- $values := .root.Values }}
{{- $timeout := get $values.extender.args "bind-timeout" }}
{{- range .config.extenders }}
  {{- if and .bindVerb $timeout }}{{- $_ := set . "httpTimeout" (printf "%ss" (toString $timeout)) }}{{- end }}
{{- end }}
{{- $_ := set .config "leaderElection" (mergeOverwrite .config.leaderElection $values.scheduler.leaderElection) }}
{{- toYaml (mergeOverwrite .config $values.scheduler.config) }}
{{- end }}

{{/* A ConfigMap with a configuration. Takes root, name and config. */}}
{{- define "gangshare.configMap" -}}
{{- $object := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" (dict "name" .name "namespace" .root.Release.Namespace) "data" (dict "scheduler.yaml" .config) }}
{{- include "gangshare.adapt" (dict "root" .root "object" $object) }}
{{- toYaml $object }}
{{- end }}
