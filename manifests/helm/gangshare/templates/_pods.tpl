{{/* Options as words of a command line, JSON. Takes words and options: an option replaces the word of its name. */}}
{{- define "gangshare.args" -}}
{{- $args := list }}
{{- range .words }}
  {{- $name := regexReplaceAll "^--(no-)?([^=]+).*$" . "${2}" }}
  {{- if not (hasKey $.options $name) }}{{- $args = append $args . }}{{- end }}
{{- end }}
{{- range $name, $value := .options }}
  {{- if kindIs "bool" $value }}
    {{- $args = append $args (ternary (printf "--%s" $name) (printf "--no-%s" $name) $value) }}
  {{- else if kindIs "slice" $value }}
    {{- $args = append $args (printf "--%s=%s" $name (join "," $value)) }}
  {{- else if kindIs "string" $value }}
    {{- $args = append $args (printf "--%s=%s" $name $value) }}
  {{- else }}
    {{- $args = append $args (printf "--%s=%s" $name (toJson $value)) }}
  {{- end }}
{{- end }}
{{- toJson $args }}
{{- end }}

{{/* What the values say of a pod, put into its template in place. Takes root, template and values. */}}
{{- define "gangshare.pod" -}}
{{- $pod := .template.spec }}
{{- $metadata := .template.metadata }}
{{- $_ := set $metadata "labels" (merge $metadata.labels .root.Values.commonLabels (.values.podLabels | default dict)) }}
{{- with merge ($metadata.annotations | default dict) (.values.podAnnotations | default dict) .root.Values.commonAnnotations }}
  {{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- with concat .root.Values.imagePullSecrets (include "gangshare.globalSecrets" .root | fromJsonArray) }}
  {{- $_ := set $pod "imagePullSecrets" . }}
{{- end }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
  {{- with get $.values $field }}{{- $_ := set $pod $field . }}{{- end }}
{{- end }}
{{- with .values.podSecurityContext }}
  {{- $_ := set $pod "securityContext" (mergeOverwrite (dict) ($pod.securityContext | default dict) .) }}
{{- end }}
{{- end }}

{{- define "gangshare.globalSecrets" -}}
{{- $secrets := list }}
{{- range .Values.global.imagePullSecrets }}
  {{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- toJson $secrets }}
{{- end }}

{{/* What the values say of a container, put into it in place. Takes root, container, image, tag and values. */}}
{{- define "gangshare.container" -}}
{{- $_ := set .container "image" (include "gangshare.image" .) }}
{{- with .image.pullPolicy }}{{- $_ := set $.container "imagePullPolicy" . }}{{- end }}
{{- with .values.resources }}{{- $_ := set $.container "resources" . }}{{- end }}
{{- with .values.extraEnv }}
  {{- $_ := set $.container "env" (concat ($.container.env | default list) .) }}
{{- end }}
{{- with .values.extraArgs }}
  {{- $_ := set $.container "args" (concat ($.container.args | default list) .) }}
{{- end }}
{{- end }}
