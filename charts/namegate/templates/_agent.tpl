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
{{- end }}
{{- if .Values.clusterNetworkPolicy.enabled }}
- --cluster-network-policy
{{- end }}
{{- if eq .Values.networkPolicy.enforce "All" }}
- --enforce-network-policies
{{- end }}
{{- if and (hasKey .Values.cluster "watchNodes") (not .Values.cluster.watchNodes) }}
{{- include "namegate.checkOwnNode" . }}
- --watch-nodes=false
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

{{- /* Refuses values that need the addresses of all Nodes, and Nodes that nothing protects. */ -}}
{{- define "namegate.checkOwnNode" -}}
{{- if .Values.nodes.enabled -}}
{{- fail "cluster.watchNodes: policies for nodes need the addresses of all Nodes; set it to true, or nodes.enabled to false" -}}
{{- end -}}
{{- if .Values.clusterNetworkPolicy.enabled -}}
{{- fail "cluster.watchNodes: ClusterNetworkPolicies need the addresses of all Nodes; set it to true, or clusterNetworkPolicy.enabled to false" -}}
{{- end -}}
{{- if eq .Values.networkPolicy.enforce "All" -}}
{{- fail "cluster.watchNodes: networkPolicy.enforce All needs the addresses of all Nodes; set cluster.watchNodes to true, or networkPolicy.enforce to Selected" -}}
{{- end -}}
{{- if and (not .Values.corefile.text) (not .Values.cluster.ranges) -}}
{{- fail "cluster.watchNodes: without the watch of all Nodes, only cluster.ranges keeps names outside the cluster from their addresses; set cluster.ranges to the ranges of Nodes, pods and Services" -}}
{{- end -}}
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
