package corefile

import (
	"maps"
	"slices"
	"strings"
)

// elsewhere answers for CoreDNS's directives that have no meaning here.
var elsewhere = map[string]string{
	"errors":     `errors are always logged, remove the line; for decisions write "audit stdout"`,
	"log":        `queries are in the audit log, write "audit stdout" instead`,
	"health":     "the agent answers probes on its socket, remove the line",
	"ready":      "the agent answers probes on its socket, remove the line",
	"reload":     "the file is always watched, remove the line",
	"loop":       "an upstream on an address of the endpoint is refused anyway, remove the line",
	"kubernetes": `cluster names are answered by the upstream, write "cluster DOMAIN CIDR…" and "forward . kube-dns.kube-system" instead`,
	"prometheus": "metrics have a flag of the agent, write --metrics-addr there and remove the line",
	"hosts":      "names are answered by the upstream, write them there and remove the block",
}

// forwardElsewhere answers for the options of CoreDNS's forward that are none here.
var forwardElsewhere = map[string]string{
	"doh_method":                       "only plain DNS is spoken, write the address of a resolver that speaks it and remove the line",
	"except":                           "a zone takes all its names along, write a block of their own for those names, with a forward to who knows them",
	"expire":                           "idle sockets are closed by the agent itself, remove the line",
	"failfast_all_unhealthy_upstreams": `addresses that are down are still asked, write for example "deadline 2s" to give up sooner`,
	"failover":                         "after SERVFAIL, REFUSED, NOTIMP and FORMERR the next address is always asked, remove the line",
	"max_connect_attempts":             `tries are bounded by time, write for example "deadline 4s" instead`,
	"max_idle_conns":                   "idle sockets are closed by the agent itself, remove the line",
	"next":                             "a zone has one forward whose answer counts, write a block of their own for the names that others answer",
	"next_on_nodata":                   "a zone has one forward whose answer counts, write a block of their own for the names that others answer",
	"prefer_udp":                       "UDP is always tried first unless force_tcp stands there, remove the line",
	"resolver":                         "hosts' names cannot be upstreams, write their addresses into the line of forward and remove this one",
	"tls":                              "only plain DNS is spoken, write the address of a resolver that speaks it and remove the line",
	"tls_servername":                   "only plain DNS is spoken, write the address of a resolver that speaks it and remove the line",
}

// cacheElsewhere answers for the options of CoreDNS's cache that are none here.
var cacheElsewhere = map[string]string{
	"denial":   `write the time as "negative_ttl 30s", and how many answers as "entries 10000" in the cache of zone "."`,
	"disable":  `write "negative_ttl 0s" to cache no negative answers; to cache nothing, remove the lines of cache`,
	"keepttl":  "TTLs always count down, since what pods are granted ends with them, remove the line",
	"refresh":  `names are renewed before they end, write for example "prefetch 10" instead`,
	"servfail": "SERVFAIL is never kept, remove the line",
	"success":  `write the times as "cache 1h" and "min_ttl 5s", and how many answers as "entries 10000" in the cache of zone "."`,
}

// unknown says what to write instead of a directive that there is not.
func unknown(name string) string {
	if hint, ok := elsewhere[name]; ok {
		return hint
	}
	return "is not a directive, write one of " + strings.Join(known(), ", ")
}

// known returns the names of all directives, sorted.
func known() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(directives)), "cache", "forward")))
}
