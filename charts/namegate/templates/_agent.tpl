{{- /* The agent's command line. */ -}}
{{- define "namegate.args" -}}
- agent
- --source=kube
- --node-name=$(NODE_NAME)
- --namespace=$(POD_NAMESPACE)
- --pod-name=$(POD_NAME)
- --daemonset={{ include "namegate.fullname" . }}
- --config=/etc/namegate/Corefile
- --socket=/run/namegate/agent.sock
- --health-socket=/run/own/health.sock
- --standby
{{- if .Values.console.enabled }}
{{- range include "namegate.consoleAddresses" . | fromJsonArray }}
- --console-addr={{ . }}
{{- end }}
{{- end }}
{{- with .Values.cniResults }}
- --cni-results={{ . }}
{{- end }}
- --new-pods={{ .Values.newPods }}
{{- range .Values.podRanges }}
- --pod-range={{ . }}
{{- end }}
{{- if .Values.nodes.enabled }}
- --nodes
- --host-root=/host
{{- end }}
{{- if .Values.companion.enabled }}
- --companion
- --companion-ports={{ required "companion.ports is not set; write Never, or Asked or Always where Namegate enforces its policies on every node" .Values.companion.ports }}
{{- end }}
{{- if .Values.clusterNetworkPolicy.enabled }}
- --cluster-network-policy
{{- end }}
{{- if .Values.taint.enabled }}
- --clear-taint
{{- end }}
{{- if .Values.metrics.enabled }}
- --metrics-addr={{ include "namegate.metricsAddress" . }}
{{- if .Values.metrics.pprof }}
- --pprof
{{- end }}
{{- end }}
{{- if ne .Values.iptables.variant "auto" }}
- --iptables={{ .Values.iptables.variant }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* Where people are answered. */ -}}
{{- define "namegate.consoleAddresses" -}}
{{- if and .Values.metrics.enabled (eq (int .Values.console.port) (int .Values.metrics.port)) -}}
{{- fail (printf "console.port: %d is metrics.port as well; write another" (int .Values.console.port)) -}}
{{- end -}}
{{- $all := list -}}
{{- range default (list "$(HOST_IP)" "127.0.0.1") (compact (list .Values.console.address)) -}}
{{- $all = append $all (printf "[%s]:%d" . (int $.Values.console.port)) -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}

{{- /* Brackets do no harm to an IPv4 address, and an IPv6 one needs them. */ -}}
{{- define "namegate.metricsAddress" -}}
{{- printf "[%s]:%d" (default "$(HOST_IP)" .Values.metrics.address) (int .Values.metrics.port) -}}
{{- end -}}

{{- /* Where the API server is, if not where the kubelet says. */ -}}
{{- define "namegate.apiServer" -}}
{{- if .Values.apiServer.host -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | int | quote }}
{{- end -}}
{{- end -}}
