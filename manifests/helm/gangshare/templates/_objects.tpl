{{/*
The objects of files that kustomize applies, too, adapted to this release: a JSON list. Takes root and files.
*/}}
{{- define "gangshare.load" -}}
{{- $root := .root }}
{{- $objects := list }}
{{- range $file := .files }}
  {{- $text := include "gangshare.text" (dict "root" $root "file" $file) }}
  {{- range regexSplit "(?m)^---$" $text -1 }}
    {{- $object := fromYaml . }}
    {{- if and $object (eq (include "gangshare.wanted" (dict "root" $root "object" $object)) "true") }}
      {{- include "gangshare.adapt" (dict "root" $root "object" $object) }}
      {{- $objects = append $objects $object }}
    {{- end }}
  {{- end }}
{{- end }}
{{- toJson $objects }}
{{- end }}

{{/* The objects of files as YAML. Takes root and files. */}}
{{- define "gangshare.objects" -}}
{{- range include "gangshare.load" . | fromJsonArray }}
---
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A file with this release's namespace and accounts. Takes root and file. */}}
{{- define "gangshare.text" -}}
{{- $text := .root.Files.Get .file }}
{{- if not $text }}
  {{- fail (printf "the chart has no file %s: expected it by the links beside Chart.yaml" .file) }}
{{- end }}
{{- $text = $text | replace "gangshare-system" .root.Release.Namespace }}
{{- $before := "(system:serviceaccount:[a-z0-9-]+:|kind: ServiceAccount\\n(?:metadata:\\n)? +name: |serviceAccount: \\{name: |serviceAccountName: )" }}
{{- range $account, $values := include "gangshare.accounts" .root | fromJson }}
  {{- $text = regexReplaceAll (printf "%s%s\\b" $before $account) $text (printf "${1}%s" $values.name) }}
{{- end }}
{{- $text }}
{{- end }}

{{- define "gangshare.accounts" -}}
{{- dict "gangshare-scheduler" .Values.scheduler.serviceAccount "gangshare-plugin" .Values.plugin.serviceAccount | toJson }}
{{- end }}

{{/* Whether an object belongs to this release. Takes root and object. */}}
{{- define "gangshare.wanted" -}}
{{- $values := .root.Values }}
{{- $kind := .object.kind }}
{{- if eq $kind "Namespace" -}} false
{{- else if has $kind (list "Role" "RoleBinding" "ClusterRole" "ClusterRoleBinding") -}} {{ $values.rbac.create }}
{{- else if eq $kind "NetworkPolicy" -}} {{ $values.networkPolicy.enabled }}
{{- else if eq $kind "PodDisruptionBudget" -}} {{ $values.scheduler.podDisruptionBudget.enabled }}
{{- else if and (eq $kind "ServiceAccount") (eq .object.metadata.name $values.scheduler.serviceAccount.name) -}} {{ $values.scheduler.serviceAccount.create }}
{{- else if and (eq $kind "ServiceAccount") (eq .object.metadata.name $values.plugin.serviceAccount.name) -}} {{ $values.plugin.serviceAccount.create }}
{{- else -}} true
{{- end }}
{{- end }}

{{/* Changes an object in place. Takes root and object. */}}
{{- define "gangshare.adapt" -}}
{{- $metadata := .object.metadata }}
{{- $labels := include "gangshare.labels" .root | fromYaml }}
{{- $_ := set $metadata "labels" (merge ($metadata.labels | default dict) $labels .root.Values.commonLabels) }}
{{- $annotations := dict }}
{{- range $account, $values := include "gangshare.accounts" .root | fromJson }}
  {{- if and (eq $.object.kind "ServiceAccount") (eq $metadata.name $values.name) }}
    {{- $annotations = $values.annotations }}
  {{- end }}
{{- end }}
{{- with merge ($metadata.annotations | default dict) $annotations .root.Values.commonAnnotations }}
  {{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- include "gangshare.express" . }}
{{- if hasPrefix "MutatingAdmissionPolicy" .object.kind }}
  {{- $_ := set .object "apiVersion" (include "gangshare.mutatingVersion" .root) }}
{{- end }}
{{- end }}

{{- define "gangshare.labels" -}}
app.kubernetes.io/part-of: gangshare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
