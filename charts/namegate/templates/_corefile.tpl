{{- /* The agent's configuration. */ -}}
{{- define "namegate.corefile" -}}
{{- $c := .Values.corefile -}}
{{- if $c.text -}}
{{ $c.text | trim }}
{{- else -}}
. {
    {{- include "namegate.forward" $c.forward | nindent 4 }}
    bind {{ join " " $c.bind }}
    cluster {{ .Values.cluster.domain }}{{ range .Values.cluster.ranges }} {{ . }}{{ end }}
    {{- with $c.intercept }}
    intercept {{ join " " . }}
    {{- end }}
    {{- if $c.failclosed }}
    failclosed
    {{- end }}
    {{- with $c.search }}
    search {{ join " " . }}
    {{- end }}
    {{- range $c.rebindAllow }}
    rebind allow {{ .suffix }} {{ .range }}
    {{- end }}
    {{- with $c.nat64 }}
    nat64 {{ join " " . }}
    {{- end }}
    {{- with $c.grantTimeout }}
    grant timeout {{ . }}
    {{- end }}
    {{- with $c.hold }}
    hold {{ . }}
    {{- end }}
    {{- with $c.mark }}
    mark {{ . }}
    {{- end }}
    audit {{ $c.audit }}
    {{- with $c.limits }}
    {{- include "namegate.checkLimits" . }}
    limits {
        {{- range $bound, $n := . }}
        {{ snakecase $bound }} {{ $n | int64 }}
        {{- end }}
    }
    {{- end }}
    {{- with $c.extra }}
    {{- . | trim | nindent 4 }}
    {{- end }}
}
{{- range $c.zones }}

{{ join " " .names }} {
    {{- include "namegate.forward" .forward | nindent 4 }}
}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* Refuses a bound of one pod above that of all; the defaults are the agent's. */ -}}
{{- define "namegate.checkLimits" -}}
{{- $limits := . -}}
{{- range $bounds := list (list "queriesPerPod" 512 "queries" 4096) (list "connectionsPerPod" 64 "connections" 1024) -}}
{{- $one := default (index $bounds 1) (get $limits (index $bounds 0)) | int64 -}}
{{- $all := default (index $bounds 3) (get $limits (index $bounds 2)) | int64 -}}
{{- if gt $one $all -}}
{{- fail (printf "corefile.limits: %s, %d, is above %s, %d; write a lower one" (index $bounds 0) $one (index $bounds 2) $all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A forward directive with its options, if there are any. */ -}}
{{- define "namegate.forward" -}}
forward . {{ join " " .to }}
{{- if or .policy .timeout .deadline (hasKey . "maxFails") }} {
{{- with .policy }}
    policy {{ . }}
{{- end }}
{{- with .timeout }}
    timeout {{ . }}
{{- end }}
{{- with .deadline }}
    deadline {{ . }}
{{- end }}
{{- if hasKey . "maxFails" }}
    max_fails {{ .maxFails | int64 }}
{{- end }}
}
{{- end }}
{{- end -}}

{{- /*
What of the configuration only a new agent takes over: directives, and the addresses that pods dial. It is
written into the pods' template, so that a change of it rolls the agents, and a change of anything else does
not. Of a text of one's own it is whole lines, and of forward all.
*/ -}}
{{- define "namegate.restartOn" -}}
{{- $c := .Values.corefile -}}
{{- $found := list -}}
{{- if $c.text -}}
{{- $found = regexFindAll "(?m)^\\s*(audit|bind|failclosed|forward|hold|import|intercept|mark|size|keep)\\b.*$" $c.text -1 -}}
{{- else -}}
{{- range $c.forward.to -}}
{{- $to := regexReplaceAll "^([0-9.]+):53$" . "$1" -}}
{{- $to = regexReplaceAll "^\\[(.*)\\](:53)?$" $to "$1" -}}
{{- if regexMatch "^([0-9.]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$" $to }}{{ $found = append $found $to }}{{ end -}}
{{- end -}}
{{- $found = append $found (pick $c "bind" "intercept" "failclosed" "hold" "mark" "audit" | toJson) -}}
{{- $found = concat $found (regexFindAll "(?m)^\\s*(audit|bind|failclosed|hold|import|intercept|mark)\\b.*$" $c.extra -1) -}}
{{- end -}}
{{- $found | toJson | sha256sum | trunc 16 -}}
{{- end -}}
