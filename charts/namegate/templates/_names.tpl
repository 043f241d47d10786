{{- define "namegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "namegate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "namegate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "namegate.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What the pods of the hook are called and may do. */ -}}
{{- define "namegate.uninstaller" -}}
{{- include "namegate.fullname" . }}-uninstall
{{- end -}}

{{- define "namegate.selector" -}}
app.kubernetes.io/name: {{ include "namegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{- /* Labels of every object but pods. */ -}}
{{- define "namegate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "namegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "namegate.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest -}}
{{ $i.repository }}@{{ $i.digest }}
{{- else -}}
{{ $i.repository }}:{{ include "namegate.tag" . }}
{{- end -}}
{{- end -}}

{{- /* Helm reads a tag of digits as a number, which it prints with an exponent. */ -}}
{{- define "namegate.tag" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (kindIs "string" $tag) }}{{ $tag = printf "%d" (int64 $tag) }}{{ end -}}
{{ default .Chart.AppVersion $tag }}
{{- end -}}
