package chartstest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestRefused: what cannot work is refused before anything reaches the cluster,
// in words that say where and what to write.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"newpods: Hold", "additional properties 'newpods' not allowed"},
		{"corefile: {failClosed: true}", "at '/corefile': additional properties 'failClosed' not allowed"},
		{"image: {tags: x}", "at '/image': additional properties 'tags' not allowed"},
		{"newPods: hold", "at '/newPods': value must be one of 'Hold', 'Open'"},
		{"iptables: {variant: nftables}", "at '/iptables/variant': value must be one of 'auto', 'legacy', 'nft'"},
		{"image: {pullPolicy: Sometimes}", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
		{"image: {tag: 1.10}", "at '/image/tag': got number, want integer or string"},
		{"image: {tag: -1}", "at '/image/tag': minimum: got -1, want 0"},
		{"image: {tag: 'a b'}", "at '/image/tag': value must be 'the tag of an image, such as v0.1.0'"},
		{"image: {digest: sha256:12}", "at '/image/digest': value must be 'sha256: and 64 hexadecimal digits'"},
		{"image: {repository: ''}", "at '/image/repository': minLength"},
		{"clusterNetworkPolicy: {enabled: 'yes'}", "at '/clusterNetworkPolicy/enabled': got string, want boolean"},
		{"networkPolicy: {enforce: all}", "at '/networkPolicy/enforce': value must be one of 'Selected', 'All'"},
		{"companion: {enabled: true}", "additional properties 'companion' not allowed"},
		{"taint: true", "at '/taint': got boolean, want object"},
		{"cluster: {ranges: 10.0.0.0/8}", "at '/cluster/ranges': got string, want array"},
		{"cluster: {ranges: [10.244.0.0]}", "at '/cluster/ranges/0': value must be 'ADDRESS/BITS, such as 10.244.0.0/16'"},
		{"cluster: {domain: 'a b'}", "at '/cluster/domain': value must be 'a domain, such as example.org'"},
		{"cluster: {watchNodes: 'no'}", "at '/cluster/watchNodes': got string, want boolean"},
		{"cluster: {watchNodes: false}", "cluster.watchNodes: without the watch of all Nodes, only cluster.ranges keeps names outside the cluster from their addresses; set cluster.ranges"},
		{"{cluster: {watchNodes: false, ranges: [10.0.0.0/8]}, nodes: {enabled: true}}", "cluster.watchNodes: policies for nodes need the addresses of all Nodes; set it to true, or nodes.enabled to false"},
		{"{cluster: {watchNodes: false, ranges: [10.0.0.0/8]}, clusterNetworkPolicy: {enabled: true}}", "cluster.watchNodes: ClusterNetworkPolicies need the addresses of all Nodes; set it to true, or clusterNetworkPolicy.enabled to false"},
		{"{cluster: {watchNodes: false, ranges: [10.0.0.0/8]}, networkPolicy: {enforce: All}}", "cluster.watchNodes: networkPolicy.enforce All needs the addresses of all Nodes; set cluster.watchNodes to true, or networkPolicy.enforce to Selected"},
		{"podRanges: [10.244.0.0/16, all]", "at '/podRanges/1': value must be 'ADDRESS/BITS, such as 10.244.0.0/16'"},
		{"corefile: {forward: {to: []}}", "at '/corefile/forward/to': minItems: got 0, want 1"},
		{"corefile: {forward: {to: [dns.example.org]}}", "at '/corefile/forward/to/0': value must be 'an address, with a port if it is not 53, or a Service as NAME.NAMESPACE"},
		{"corefile: {forward: {to: ['192.0.2.53 }']}}", "at '/corefile/forward/to/0'"},
		{"corefile: {forward: {to: ['{$HOME}']}}", "at '/corefile/forward/to/0'"},
		{"cniResults: results", "at '/cniResults': value must be 'the full path of a folder"},
		{"nodes: {enabled: 'yes'}", "at '/nodes/enabled': got string, want boolean"},
		{"nodes: {hostFiles: [/etc/resolv.conf]}", "at '/nodes': additional properties 'hostFiles' not allowed"},
		{"corefile: {failsafe: ['192.0.2.0/24 TCP 443']}", "at '/corefile/failsafe/0': value must be 'out CIDR… or in CIDR…, with PROTOCOL PORT… behind it or not, nodes CIDR… or none"},
		{"corefile: {failsafe: ['out ntp.test UDP 123']}", "at '/corefile/failsafe/0': value must be 'out CIDR"},
		{"corefile: {failsafe: ['out 192.0.2.1 ICMP 1']}", "at '/corefile/failsafe/0': value must be 'out CIDR"},
		{"corefile: {failsafe: ['out 192.0.2.1 TCP 1 }']}", "at '/corefile/failsafe/0': value must be 'out CIDR"},
		{"corefile: {failsafe: ['none 192.0.2.1']}", "at '/corefile/failsafe/0': value must be 'out CIDR"},
		{"corefile: {forward: {policy: fastest}}", "at '/corefile/forward/policy': value must be one of 'random', 'round_robin', 'sequential'"},
		{"corefile: {forward: {timeout: 2}}", "at '/corefile/forward/timeout': got number, want string"},
		{"corefile: {zones: [{names: [corp.test]}]}", "at '/corefile/zones/0': missing property 'forward'"},
		{"corefile: {zones: [{names: ['a\nb'], forward: {to: [192.0.2.1]}}]}", "at '/corefile/zones/0/names/0': value must be 'a domain"},
		{"corefile: {bind: []}", "at '/corefile/bind': minItems: got 0, want 1"},
		{"corefile: {bind: ['169.254.20.53:53']}", "at '/corefile/bind/0': value must be 'an IPv4 or IPv6 address without port"},
		{"corefile: {intercept: [node-local-dns]}", "at '/corefile/intercept/0': value must be 'an IPv4 or IPv6 address without port"},
		{"corefile: {rebindAllow: [{suffix: a.test}]}", "at '/corefile/rebindAllow/0': missing property 'range'"},
		{"corefile: {hold: 10}", "at '/corefile/hold': got number, want string"},
		{"corefile: {hold: ten}", "at '/corefile/hold': value must be 'a duration, such as 500ms, 30s or 10m'"},
		{"corefile: {dataplane: ebpf}", "at '/corefile/dataplane': value must be one of 'auto', 'iptables', 'nftables'"},
		{"corefile: {mark: '0x41'}", "at '/corefile/mark': value must be 'one bit, such as 0x40'"},
		{"corefile: {audit: file}", "at '/corefile/audit': value must be 'stdout, off, or the full path of a file'"},
		{"corefile: {audit: /var/log/namegate/audit.log}", "write stdout, or mount its folder by extraVolumes"},
		{"corefile: {auditFilter: [denied]}", "at '/corefile/auditFilter': got array, want object"},
		{"corefile: {auditFilter: {verdict: [denied]}}", "at '/corefile/auditFilter': additional properties 'verdict' not allowed"},
		{"corefile: {auditFilter: {verdicts: [dropped]}}", "at '/corefile/auditFilter/verdicts/0': value must be one of 'allowed', 'unmatched', 'refused', 'blocked', 'failed', 'renewed', 'denied', 'would-deny'"},
		{"corefile: {auditFilter: {verdicts: [denied, denied]}}", "at '/corefile/auditFilter/verdicts': items at 0 and 1 are equal"},
		{"corefile: {auditFilter: {namespaces: [Shop]}}", "at '/corefile/auditFilter/namespaces/0': value must be 'the name of a namespace, such as shop'"},
		{"corefile: {auditFilter: {sample: 0}}", "at '/corefile/auditFilter/sample': minimum: got 0, want 1"},
		{"corefile: {audit: 'off', auditFilter: {sample: 10}}", "corefile.auditFilter: the log is off and has no lines to choose from; remove it, or set corefile.audit to stdout or a file"},
		{"corefile: {limits: {query: 3}}", "at '/corefile/limits': additional properties 'query' not allowed"},
		{"corefile: {limits: {addresses: 0}}", "at '/corefile/limits/addresses': minimum: got 0, want 1"},
		{"corefile: {limits: {queriesPerPod: 9000}}", "corefile.limits: queriesPerPod, 9000, is above queries, 4096"},
		{"corefile: {limits: {connections: 8}}", "corefile.limits: connectionsPerPod, 64, is above connections, 8"},
		{"corefile: {serverNames: {timeout: 3}}", "at '/corefile/serverNames': additional properties 'timeout' not allowed"},
		{"corefile: {serverNames: {hellos: 0}}", "at '/corefile/serverNames/hellos': minimum: got 0, want 1"},
		{"corefile: {serverNames: {connections: 70000}}", "at '/corefile/serverNames/connections': maximum"},
		{"corefile: {serverNames: {hellosPerPod: 1025}}", "corefile.serverNames: hellosPerPod, 1025, is above hellos, 1024"},
		{"corefile: {serverNames: {grace: 2h}}", "corefile.serverNames: grace, 2h, is out of bounds; write 0s to 1h"},
		{"corefile: {serverNames: {grace: 30}}", "at '/corefile/serverNames/grace': got number, want string"},
		{"corefile: {forward: {healthCheck: often}}", "at '/corefile/forward/healthCheck': value must be 'a duration, such as 500ms, 30s or 10m'"},
		{"corefile: {forward: {maxConcurrent: 2000000}}", "at '/corefile/forward/maxConcurrent': maximum"},
		{"corefile: {forward: {forceTCP: 'yes'}}", "at '/corefile/forward/forceTCP': got string, want boolean"},
		{"corefile: {cache: 30s}", "at '/corefile/cache': got string, want object"},
		{"corefile: {cache: {enabled: 'on'}}", "at '/corefile/cache/enabled': got string, want boolean"},
		{"corefile: {cache: {success: 30s}}", "at '/corefile/cache': additional properties 'success' not allowed"},
		{"corefile: {cache: {maxTTL: 30}}", "at '/corefile/cache/maxTTL': got number, want string"},
		{"corefile: {cache: {maxTTL: 500ms}}", "at '/corefile/cache/maxTTL': value must be 'a duration of whole seconds, such as 5s, 10m or 1h'"},
		{"corefile: {cache: {maxTTL: 200h}}", "corefile.cache: maxTTL, 200h, is out of bounds; write 1s to 168h"},
		{"corefile: {cache: {minTTL: 1m}}", "corefile.cache: minTTL, 1m, is above maxTTL, 30s; write a lower one"},
		{"corefile: {cache: {negativeTTL: 99999999999h}}", "at '/corefile/cache/negativeTTL': value must be"},
		{"corefile: {cache: {serveStale: 25h}}", "corefile.cache: serveStale, 25h, is out of bounds; write 1s to 24h"},
		{"corefile: {cache: {prefetch: {within: 1m}}}", "at '/corefile/cache/prefetch': properties 'amount' required, if 'within' exists"},
		{"corefile: {cache: {prefetch: {amount: 1, percent: 91}}}", "at '/corefile/cache/prefetch/percent': maximum"},
		{"corefile: {cache: {prefetch: {amount: 1, within: 0s}}}", "corefile.cache: prefetch.within, 0s, is out of bounds; write 1s to 24h"},
		{"corefile: {cache: {entries: 8}}", "at '/corefile/cache/entries': minimum"},
		{"corefile: {cache: {size: 32MB}}", "at '/corefile/cache/size': value must be '1MiB to 1024MiB, such as 32MiB'"},
		{"corefile: {zones: [{names: [corp.test], forward: {to: [192.0.2.1]}, cache: {size: 1GiB}}]}", "at '/corefile/zones/0/cache': additional properties 'size' not allowed"},
		{"corefile: {zones: [{names: [corp.test], forward: {to: [192.0.2.1]}, cache: {minTTL: 40s}}]}", "corefile.zones[0].cache: minTTL, 40s, is above maxTTL, 30s"},
		{"corefile: {ttl: 5s}", "at '/corefile/ttl': got string, want object"},
		{"corefile: {ttl: {minTTL: 2h}}", "corefile.ttl: minTTL, 2h, is out of bounds; write 0s to 1h"},
		{"corefile: {ttl: {minTTL: 1m, maxTTL: 5s}}", "corefile.ttl: minTTL, 1m, is above maxTTL, 5s; write a lower one"},
		{"corefile: {follow: 'off'}", "at '/corefile/follow': got string, want boolean"},
		{"apiServer: {host: 'https://192.0.2.1'}", "at '/apiServer/host': value must be 'the name or address of a host, without scheme, port and brackets'"},
		{"apiServer: {port: 65536}", "at '/apiServer/port': maximum"},
		{"metrics: {port: http}", "at '/metrics/port': got string, want integer"},
		{"metrics: {address: '0.0.0.0:9953'}", "at '/metrics/address': value must be 'an IPv4 or IPv6 address without port, such as 0.0.0.0'"},
		{"console: true", "at '/console': got boolean, want object"},
		{"console: {port: 0}", "at '/console/port': minimum: got 0, want 1"},
		{"console: {port: 9953}", "console.port: 9953 is metrics.port as well; write another"},
		{"console: {address: node-a}", "at '/console/address': value must be 'an IPv4 or IPv6 address without port, such as 0.0.0.0'"},
		{"console: {readers: everybody}", "at '/console/readers': got string, want array"},
		{"console: {tls: {}}", "at '/console': additional properties 'tls' not allowed"},
		{"metrics: {enabled: false, serviceMonitor: {enabled: true}}", "set metrics.enabled to true as well"},
		{"metrics: {pprof: 'on'}", "at '/metrics/pprof': got string, want boolean"},
		{"{metrics: {enabled: false}, alerts: {enabled: true}}", "alerts.enabled: there are no metrics to look at; set metrics.enabled to true as well"},
		{"{metrics: {enabled: false}, dashboards: {enabled: true}}", "dashboards.enabled: there are no metrics to show; set metrics.enabled to true as well"},
		{"alerts: {runbooks: docs/runbooks.md}", "at '/alerts/runbooks': value must be 'where the runbooks are, such as https://example.org/runbooks.md'"},
		{"alerts: {labels: {a: 1}}", "at '/alerts/labels/a': got number, want string"},
		{"alerts: {severity: none}", "at '/alerts': additional properties 'severity' not allowed"},
		{"dashboards: true", "at '/dashboards': got boolean, want object"},
		{"uninstall: {deadlineSeconds: 0}", "at '/uninstall/deadlineSeconds': minimum"},
		{"rollout: {maxSurge: 0}", "at '/rollout/maxSurge': minimum"},
		{"rollout: {maxSurge: all}", "at '/rollout/maxSurge': value must be 'a number of nodes or a percentage, such as 10%'"},
		{"rollout: {maxUnavailable: 1}", "at '/rollout': additional properties 'maxUnavailable' not allowed"},
		{"nodeSelector: {here: true}", "at '/nodeSelector/here': got boolean, want string"},
		{"tolerations: {operator: Exists}", "at '/tolerations': got object, want array"},
		{"extraArgs: [later]", "at '/extraArgs/0': value must be 'a flag of namegate agent, such as --flag=value'"},
		{"fullnameOverride: Name", "at '/fullnameOverride': value must be 'lower-case letters, digits and -, up to 63'"},
	} {
		_, err := install(t, "namegate", c.values)
		if err == nil {
			t.Errorf("accepted: %s", c.values)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n  is refused by: %v\n  want: %s", c.values, err, c.want)
		}
	}
}

// TestAccepted: what looks unusual and is right.
func TestAccepted(t *testing.T) {
	for _, text := range []string{
		"corefile: {mark: 0x40}",
		"cniResults: ''",
		"corefile: {failsafe: [none, 'nodes 192.0.2.7 2001:db8::/64', 'out 192.0.2.1', 'in 192.0.2.1 TCP 9100', 'out 192.0.2.0/24 2001:db8::1 TCP 443 8000-8999', 'out 2001:db8::/64 SCTP 1-2']}",
		"cniResults: /var/snap/cni/results",
		"corefile: {mark: '0x80000000'}",
		"corefile: {mark: '0x40 0x100'}",
		"corefile: {mark: '0x40 0x100 0x1'}",
		"corefile: {hold: 1h30m}",
		"corefile: {forward: {to: ['2001:db8::53', '[2001:db8::54]:5353', '192.0.2.53:5353', coredns.dns-1]}}",
		"corefile: {bind: ['fd5c:7a1e:93b4::53']}",
		"corefile: {extra: 'search corp.test'}",
		"corefile: {limits: {queries: 100, queriesPerPod: 100}}",
		"corefile: {serverNames: {hellos: 65536, connections: 1024, grace: 1h}}",
		"corefile: {cache: {maxTTL: 1h30m, minTTL: 0s, negativeTTL: 0s, serveStale: ''}}",
		"corefile: {cache: {enabled: false}, ttl: {}, follow: false}",
		"corefile: {forward: {to: [192.0.2.53], healthCheck: 50ms, maxConcurrent: 0, forceTCP: false}}",
		"cluster: {domain: k8s.corp.test., ranges: ['2001:db8::/32', '::ffff/128']}",
		"image: {tag: v1.2.3-4-gabcdef0}",
		"rollout: {maxSurge: 100%}",
		"rollout: {maxSurge: 25}",
		"apiServer: {host: '2001:db8::1'}",
		"apiServer: {host: api.corp.test}",
		"metrics: {address: '::'}",
		"priorityClassName: ''",
		"resources: {limits: {cpu: 1}}",
	} {
		if _, err := install(t, "namegate", text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestClosed: wherever the schema names the keys of an object, it refuses others.
func TestClosed(t *testing.T) {
	text, err := os.ReadFile(chartPath + "/values.schema.json")
	fatal.If(t, err)
	var schema any
	fatal.If(t, yaml.Unmarshal(text, &schema))
	objects := 0
	var visit func(path string, at any)
	visit = func(path string, at any) {
		switch at := at.(type) {
		case []any:
			for i, v := range at {
				visit(fmt.Sprintf("%s/%d", path, i), v)
			}
		case map[string]any:
			if _, named := at["properties"].(map[string]any); named && at["type"] == "object" {
				objects++
				if at["additionalProperties"] != false {
					t.Errorf("%s takes any key", path)
				}
			}
			for k, v := range at {
				visit(path+"/"+k, v)
			}
		}
	}
	visit("", schema)
	if objects < 15 {
		t.Errorf("only %d objects found", objects)
	}
}
