{{- /* The agent's configuration. */ -}}
{{- define "namegate.corefile" -}}
{{- $c := .Values.corefile -}}
{{- if $c.text -}}
{{ $c.text | trim }}
{{- else -}}
. {
    {{- include "namegate.forward" $c.forward | nindent 4 }}
    {{- with include "namegate.cache" (dict "where" "corefile.cache" "cache" $c.cache) }}
    {{- nindent 4 . }}
    {{- end }}
    {{- with $c.ttl }}
    {{- include "namegate.checkTTL" . }}
    ttl {{ default "0s" .minTTL }} {{ default "2147483647" .maxTTL }}
    {{- end }}
    {{- if and (hasKey $c "follow") (not $c.follow) }}
    follow off
    {{- end }}
    bind {{ join " " $c.bind }}
    cluster {{ .Values.cluster.domain }}{{ range .Values.cluster.ranges }} {{ . }}{{ end }}
    {{- with $c.intercept }}
    intercept {{ join " " . }}
    {{- end }}
    {{- if $c.failclosed }}
    failclosed
    {{- end }}
    {{- range $c.failsafe }}
    failsafe {{ . }}
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
    {{- with $c.dataplane }}
    dataplane {{ . }}
    {{- end }}
    {{- with $c.mark }}
    mark {{ . }}
    {{- end }}
    {{- include "namegate.audit" $c | nindent 4 }}
    {{- with $c.limits }}
    {{- include "namegate.checkLimits" . }}
    limits {
        {{- range $bound, $n := . }}
        {{ snakecase $bound }} {{ $n | int64 }}
        {{- end }}
    }
    {{- end }}
    {{- with $c.serverNames }}
    {{- include "namegate.checkServerNames" . }}
    servernames {
        {{- range $option, $n := . }}
        {{ snakecase $option }} {{ if kindIs "string" $n }}{{ default "30s" $n }}{{ else }}{{ $n | int64 }}{{ end }}
        {{- end }}
    }
    {{- end }}
    {{- with $c.extra }}
    {{- . | trim | nindent 4 }}
    {{- end }}
}
{{- range $i, $zone := $c.zones }}
{{- /* What a zone's cache leaves out is as in the root zone's, where the bounds of the whole agent stand. */ -}}
{{- $cache := dict -}}
{{- range $k, $v := omit (default dict $c.cache) "entries" "size" -}}{{- $_ := set $cache $k $v -}}{{- end -}}
{{- range $k, $v := $zone.cache -}}{{- $_ := set $cache $k $v -}}{{- end }}

{{ join " " $zone.names }} {
    {{- include "namegate.forward" $zone.forward | nindent 4 }}
    {{- with include "namegate.cache" (dict "where" (printf "corefile.zones[%d].cache" $i) "cache" $cache) }}
    {{- nindent 4 . }}
    {{- end }}
}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* The audit directive with its filters, if there are any. */ -}}
{{- define "namegate.audit" -}}
{{- $options := list -}}
{{- with .auditFilter -}}
{{- with .verdicts }}{{ $options = append $options (printf "verdict %s" (join " " .)) }}{{ end -}}
{{- with .namespaces }}{{ $options = append $options (printf "namespace %s" (join " " .)) }}{{ end -}}
{{- with .sample }}{{ $options = append $options (printf "sample %d" (. | int64)) }}{{ end -}}
{{- end -}}
{{- if and $options (eq .audit "off") -}}
{{- fail "corefile.auditFilter: the log is off and has no lines to choose from; remove it, or set corefile.audit to stdout or a file" -}}
{{- end -}}
audit {{ .audit }}
{{- with $options }} {
{{- range . }}
    {{ . }}
{{- end }}
}
{{- end }}
{{- end -}}

{{- /* Refuses a bound of one pod above that of all; the defaults are the agent's. */ -}}
{{- define "namegate.checkLimits" -}}
{{- include "namegate.checkBounds" (list "limits" . (list "queriesPerPod" 512 "queries" 4096) (list "connectionsPerPod" 64 "connections" 1024)) -}}
{{- end -}}

{{- define "namegate.checkServerNames" -}}
{{- include "namegate.checkBounds" (list "serverNames" . (list "connectionsPerPod" 1024 "connections" 8192) (list "hellosPerPod" 64 "hellos" 1024)) -}}
{{- if gt (include "namegate.grace" . | int64) 3600 -}}
{{- fail (printf "corefile.serverNames: grace, %s, is out of bounds; write 0s to 1h" .grace) -}}
{{- end -}}
{{- end -}}

{{- /* How long connections of rules with a server name are served in an upgrade, in seconds; the default is the agent's. */ -}}
{{- define "namegate.grace" -}}
{{- include "namegate.seconds" (default "30s" .grace) -}}
{{- end -}}

{{- define "namegate.checkBounds" -}}
{{- $where := index . 0 -}}
{{- $limits := index . 1 -}}
{{- range $bounds := slice . 2 -}}
{{- $one := default (index $bounds 1) (get $limits (index $bounds 0)) | int64 -}}
{{- $all := default (index $bounds 3) (get $limits (index $bounds 2)) | int64 -}}
{{- if gt $one $all -}}
{{- fail (printf "corefile.%s: %s, %d, is above %s, %d; write a lower one" $where (index $bounds 0) $one (index $bounds 2) $all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A forward directive with its options, if there are any. */ -}}
{{- define "namegate.forward" -}}
{{- $options := list -}}
{{- with .policy }}{{ $options = append $options (printf "policy %s" .) }}{{ end -}}
{{- with .timeout }}{{ $options = append $options (printf "timeout %s" .) }}{{ end -}}
{{- with .deadline }}{{ $options = append $options (printf "deadline %s" .) }}{{ end -}}
{{- if hasKey . "maxFails" }}{{ $options = append $options (printf "max_fails %d" (.maxFails | int64)) }}{{ end -}}
{{- with .healthCheck }}{{ $options = append $options (printf "health_check %s" .) }}{{ end -}}
{{- if hasKey . "maxConcurrent" }}{{ $options = append $options (printf "max_concurrent %d" (.maxConcurrent | int64)) }}{{ end -}}
{{- if .forceTCP }}{{ $options = append $options "force_tcp" }}{{ end -}}
forward . {{ join " " .to }}
{{- with $options }} {
{{- range . }}
    {{ . }}
{{- end }}
}
{{- end }}
{{- end -}}

{{- /* A cache directive, if there is to be one. */ -}}
{{- define "namegate.cache" -}}
{{- $where := .where -}}
{{- with .cache -}}
{{- if .enabled -}}
{{- include "namegate.checkCache" (dict "where" $where "cache" .) -}}
cache{{ with .maxTTL }} {{ . }}{{ end }} {
{{- with .minTTL }}
    min_ttl {{ . }}
{{- end }}
{{- with .negativeTTL }}
    negative_ttl {{ . }}
{{- end }}
{{- with .prefetch }}
    prefetch {{ .amount | int64 }} {{ default "1m" .within }} {{ default 10 .percent | int64 }}%
{{- end }}
{{- with .serveStale }}
    serve_stale {{ . }}
{{- end }}
{{- with .entries }}
    entries {{ . | int64 }}
{{- end }}
{{- with .size }}
    size {{ . }}
{{- end }}
}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* Refuses times that the agent would refuse; it knows the defaults of what is left out. */ -}}
{{- define "namegate.checkCache" -}}
{{- $where := .where -}}
{{- $times := merge (dict "prefetch.within" (get (default dict .cache.prefetch) "within")) .cache -}}
{{- range $bound := list
    (list "maxTTL" 1 604800 "1s to 168h") (list "minTTL" 0 3600 "0s to 1h") (list "negativeTTL" 0 10800 "0s to 3h")
    (list "serveStale" 1 86400 "1s to 24h") (list "prefetch.within" 1 86400 "1s to 24h") -}}
{{- with get $times (index $bound 0) -}}
{{- $seconds := include "namegate.seconds" . | int64 -}}
{{- if or (lt $seconds (index $bound 1 | int64)) (gt $seconds (index $bound 2 | int64)) -}}
{{- fail (printf "%s: %s, %s, is out of bounds; write %s" $where (index $bound 0) . (index $bound 3)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $minTTL := default "0s" .cache.minTTL -}}
{{- $maxTTL := default "1h" .cache.maxTTL -}}
{{- if gt (include "namegate.seconds" $minTTL | int64) (include "namegate.seconds" $maxTTL | int64) -}}
{{- fail (printf "%s: minTTL, %s, is above maxTTL, %s; write a lower one" $where $minTTL $maxTTL) -}}
{{- end -}}
{{- end -}}

{{- define "namegate.checkTTL" -}}
{{- $minTTL := include "namegate.seconds" (default "0s" .minTTL) | int64 -}}
{{- $most := 2147483647 | int64 -}}
{{- $maxTTL := $most -}}
{{- with .maxTTL }}{{ $maxTTL = include "namegate.seconds" . | int64 }}{{ end -}}
{{- if gt $minTTL 3600 -}}
{{- fail (printf "corefile.ttl: minTTL, %s, is out of bounds; write 0s to 1h" .minTTL) -}}
{{- end -}}
{{- if gt $maxTTL $most -}}
{{- fail (printf "corefile.ttl: maxTTL, %s, is out of bounds; write 0s to 2147483647s" .maxTTL) -}}
{{- end -}}
{{- if gt $minTTL $maxTTL -}}
{{- fail (printf "corefile.ttl: minTTL, %s, is above maxTTL, %s; write a lower one" .minTTL .maxTTL) -}}
{{- end -}}
{{- end -}}

{{- /* A time of the values, such as 1h30m, in seconds. */ -}}
{{- define "namegate.seconds" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[smh]" . -1 -}}
{{- $unit := get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]$" .) -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int64) $unit) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- /*
What of the configuration only a new agent takes over: directives, and the addresses that pods dial. It is
written into the pods' template, so that a change of it rolls the agents, and a change of anything else does
not. Of a text of one's own it is whole lines, of audit with the block but for its filters, of servernames with the block, and of forward all.
*/ -}}
{{- define "namegate.restartOn" -}}
{{- $c := .Values.corefile -}}
{{- $found := list -}}
{{- /* A block follows its directive up to the brace that ends it. */ -}}
{{- $blocks := `(audit|servernames)\b([^\n{]|\{[$%])*(\{([^{}#]|#.*|\{[$%][^}]*\})*\})?` -}}
{{- $lines := `(bind|dataplane|failclosed|hold|import|intercept|mark)\b.*$` -}}
{{- if $c.text -}}
{{- range regexFindAll (printf `(?m)^\s*(%s|forward\b.*$|%s)` $blocks $lines) $c.text -1 }}{{ $found = append $found (regexReplaceAll `(?m)\n\s*(verdict|namespace|sample)\b.*$` . "") }}{{ end -}}
{{- else -}}
{{- range $c.forward.to -}}
{{- $to := regexReplaceAll "^([0-9.]+):53$" . "$1" -}}
{{- $to = regexReplaceAll "^\\[(.*)\\](:53)?$" $to "$1" -}}
{{- if regexMatch "^([0-9.]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$" $to }}{{ $found = append $found $to }}{{ end -}}
{{- end -}}
{{- $found = append $found (pick $c "bind" "dataplane" "intercept" "failclosed" "hold" "mark" "audit" "serverNames" | toJson) -}}
{{- $found = concat $found (regexFindAll (printf `(?m)^\s*(%s|%s)` $blocks $lines) $c.extra -1) -}}
{{- end -}}
{{- $found | toJson | sha256sum | trunc 16 -}}
{{- end -}}
