package browser

import (
	"fmt"
	"time"
)

// shopping is the data of a small cluster: workloads of four namespaces and a node, with every
// verdict.
func (f *fake) shopping(now time.Time) {
	f.agents = []object{
		{"node": "node-1", "state": "well", "version": "v9", "problems": []object{}},
		{"node": "node-2", "state": "well", "version": "v9", "problems": []object{}},
		{"node": "node-3", "state": "well", "version": "v9", "problems": []object{}},
	}
	for _, e := range shoppingEdges {
		f.edge(now, e)
	}
	i := 0
	for round := range 4 {
		for k := range shoppingEdges {
			e := shoppingEdges[k*5%len(shoppingEdges)] // verdicts are mixed
			i++
			if e.verdict == "allowed" || round%2 == 1 {
				f.line(i, now.Add(time.Duration(-4*len(shoppingEdges)+i)*3100*time.Millisecond), e)
			}
		}
	}
	f.answers["explain"] = explained
	f.answers["suggest"] = suggested
	f.answers["grants"] = object{"grants": grantsOf(now)}
	f.answers["policies"] = policiesOf(now)
	f.answers["status"] = object{"nodes": []object{statusOf("node-1", 42, 118), statusOf("node-2", 38, 97), statusOf("node-3", 40, 104)}}
}

// use is an edge of the data: who, to what, how often.
type use struct {
	namespace, workload, pod, name, address string
	port                                    int
	verdict                                 string
	count                                   int
	perSecond                               float64
	policy, match, reason                   string
}

var shoppingEdges = []use{
	{"shop", "app=web,tier=front", "web-6c9f7d-x2kqp", "cdn.example.org", "192.0.2.10", 443, "allowed", 18240, 5.2, "shop/front", "*.example.org", ""},
	{"shop", "app=web,tier=front", "web-6c9f7d-x2kqp", "auth.example.org", "192.0.2.11", 443, "allowed", 4310, 1.4, "shop/front", "*.example.org", ""},
	{"shop", "app=web,tier=front", "web-6c9f7d-x2kqp", "images.example.net", "198.51.100.8", 443, "allowed", 2120, 0.8, "shop/front", "images.example.net", ""},
	{"shop", "app=cart", "cart-7d9f4b-9tz5m", "api.payments.test", "203.0.113.20", 443, "allowed", 1870, 0.6, "shop/cart", "api.payments.test", ""},
	{"shop", "app=cart", "cart-7d9f4b-9tz5m", "auth.example.org", "192.0.2.11", 443, "allowed", 940, 0.2, "shop/cart", "auth.example.org", ""},
	{"shop", "app=cart", "cart-7d9f4b-9tz5m", "telemetry.vendor.test", "203.0.113.66", 443, "denied", 312, 0.3, "shop/cart", "", "unmatched"},
	{"shop", "app=cart", "cart-7d9f4b-9tz5m", "db.example.org", "192.0.2.40", 6432, "denied", 18, 0, "shop/cart", "*.example.org", "ports"},
	{"shop", "app=mail", "mail-59c8-rr8wz", "smtp.example.net", "198.51.100.25", 587, "allowed", 210, 0, "shop/mail", "smtp.example.net", ""},
	{"shop", "app=mail", "mail-59c8-rr8wz", "smtp.example.net", "198.51.100.25", 25, "would-deny", 34, 0, "shop/mail", "smtp.example.net", "ports"},
	{"pay", "app=ledger", "ledger-0", "bank.test", "203.0.113.90", 443, "allowed", 760, 0.4, "pay/ledger", "bank.test", ""},
	{"pay", "app=ledger", "ledger-0", "rates.bank.test", "203.0.113.91", 443, "allowed", 120, 0, "pay/ledger", "*.bank.test", ""},
	{"pay", "app=ledger", "ledger-0", "203.0.113.200", "203.0.113.200", 22, "denied", 6, 0, "pay/ledger", "", "address"},
	{"pay", "app=fraud", "fraud-5b7-k2h9c", "models.example.org", "192.0.2.71", 443, "failed", 22, 0.1, "pay/fraud", "models.example.org", "no upstream of zone . answered in 4s"},
	{"pay", "app=fraud", "fraud-5b7-k2h9c", "features.example.org", "192.0.2.72", 443, "allowed", 530, 0.2, "pay/fraud", "features.example.org", ""},
	{"ci", "app=runner", "runner-8841", "registry.example.net", "198.51.100.77", 443, "allowed", 6120, 3.1, "ci/runners", "*.example.net", ""},
	{"ci", "app=runner", "runner-8841", "proxy.modules.test", "198.51.100.80", 443, "allowed", 2980, 2.2, "ci/runners", "proxy.modules.test", ""},
	{"ci", "app=runner", "runner-8841", "paste.example.com", "203.0.113.140", 443, "refused", 41, 0, "no-paste-sites", "**.paste.example.com", "unmatched"},
	{"ci", "app=runner", "runner-8841", "x7.tunnel.test", "", 0, "refused", 388, 0.5, "ci/runners", "", "types"},
	{"ci", "app=cache", "cache-0", "objects.example.net", "198.51.100.79", 443, "allowed", 890, 0, "ci/cache", "objects.example.net", ""},
	{"monitoring", "app=agent", "agent-2v9dl", "metrics.example.com", "203.0.113.30", 443, "allowed", 3605, 1, "monitoring/out", "metrics.example.com", ""},
	{"monitoring", "app=agent", "agent-2v9dl", "logs.example.com", "203.0.113.31", 443, "unmatched", 96, 0, "monitoring/watch", "", ""},
	{"", "Node/node-2", "", "mirror.example.net", "198.51.100.90", 80, "would-deny", 12, 0, "workers", "", "rule"},
}

func (f *fake) edge(now time.Time, e use) {
	f.edges = append(f.edges, object{
		"id":       fmt.Sprintf("e%d", len(f.edges)+1),
		"workload": e.workload, "namespace": e.namespace, "name": e.name, "verdict": e.verdict,
		"count": e.count, "perSecond": e.perSecond, "last": now.Add(-time.Duration(len(f.edges)) * time.Second),
		"policies": []string{e.policy}, "reason": e.reason,
	})
}

// line adds a line of an edge, a connection if it was denied and else a query.
func (f *fake) line(id int, at time.Time, e use) object {
	l := object{"v": 1, "time": at.UTC().Format("2006-01-02T15:04:05.000000Z"), "node": fmt.Sprintf("node-%d", 1+id%3), "verdict": e.verdict}
	if e.pod != "" {
		l["pod"] = object{"namespace": e.namespace, "name": e.pod, "workload": e.workload, "ip": "10.1.0.10"}
	} else {
		l["node"] = e.workload[len("Node/"):]
		l["host"] = object{"uid": 42, "ip": "192.0.2.7"}
	}
	var text string
	if e.verdict == "denied" || e.verdict == "would-deny" {
		l["kind"], l["protocol"], l["reason"], l["policies"], l["count"] = "flow", "tcp", e.reason, []string{e.policy}, 1+e.count%7
		l["last"] = at.Add(20 * time.Second).UTC()
		l["destination"] = object{"address": e.address, "port": e.port}
		text = fmt.Sprintf("tcp %s:%d", e.address, e.port)
		if e.name != e.address {
			l["names"] = []object{{"name": e.name, "asked": at.Add(-time.Second).UTC()}}
			text += " " + e.name
		}
		text += " " + map[string]string{"unmatched": "- no match covers the name", "ports": "- allowed on other ports", "address": "- never resolved here: dialled by address", "rule": "(Admin) workers everything else"}[e.reason]
	} else {
		l["kind"], l["protocol"], l["question"], l["rcode"] = "dns", "udp", object{"name": e.name, "type": "A", "class": "IN"}, "NOERROR"
		text = "A " + e.name
		switch e.verdict {
		case "allowed":
			l["answers"] = []object{{"address": e.address, "granted": true}}
			text += " opened " + e.address
		case "failed":
			l["rcode"], l["error"] = "SERVFAIL", e.reason
			text += " SERVFAIL"
		case "refused":
			l["rcode"] = "NXDOMAIN"
			text += " NXDOMAIN"
		}
		if e.match != "" {
			l["matches"] = []object{{"policy": e.policy, "path": "spec.egress[0].matches[0]", "match": e.match}}
			text += " by " + e.policy + " " + e.match
		} else if e.reason == "types" {
			l["limit"] = "types"
			l["matches"] = []object{{"policy": e.policy, "path": "spec.egress[0].matches[0]", "match": "*.tunnel.test"}}
			text += " by " + e.policy + " *.tunnel.test limited by dns.types"
		}
	}
	n := object{"id": id, "line": l, "text": text}
	f.lines = append(f.lines, n)
	return n
}

var explained = object{
	"text": `shop/cart-7d9f4b-9tz5m to telemetry.vendor.test:443/tcp: denied
no match of the pod's policies covers the name.

node           node-1
selected by    shop/cart (Enforce)
covered by     no match
denied lately  3 × tcp 203.0.113.66:443 (telemetry.vendor.test), 4s ago: unmatched
note           shop/front covers no such name either

What to do
1. apply the manifest below: policies add up, so nothing else changes for the pod

---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  name: allow-telemetry.vendor.test
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: cart
  egress:
  - matches:
    - name: telemetry.vendor.test
    ports:
    - protocol: TCP
      port: 443
`,
	"explanation": object{"pod": "shop/cart-7d9f4b-9tz5m", "verdict": "denied"},
}

var suggested = object{
	"yaml": `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  name: cart-suggested
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: cart
  egress:
  - matches:
    - name: db.example.org
    ports:
    - protocol: TCP
      port: 6432
  - matches:
    - name: telemetry.vendor.test
    ports:
    - protocol: TCP
      port: 443
`,
	"notes": []string{"203.0.113.200:22/tcp is left out: no pod asked for a name with this address"},
}

func grantsOf(now time.Time) []object {
	var out []object
	for i, e := range shoppingEdges {
		if e.verdict != "allowed" {
			continue
		}
		g := object{
			"node": fmt.Sprintf("node-%d", 1+i%3), "namespace": e.namespace, "pod": e.pod, "name": e.name, "address": e.address, "ports": fmt.Sprintf("tcp/%d", e.port),
			"until": now.Add(time.Duration(50+i*37) * time.Second).UTC(), "by": e.policy + " " + e.match,
		}
		if i == 4 {
			g["held"] = now.Add(-5 * time.Minute).UTC()
		}
		out = append(out, g)
	}
	return out
}

func policiesOf(now time.Time) object {
	match := func(i int, m string, hits int, last time.Duration) object {
		o := object{"path": fmt.Sprintf("spec.egress[0].matches[%d]", i), "match": m, "hits": hits}
		if hits > 0 {
			o["last"] = now.Add(-last).UTC()
		}
		return o
	}
	return object{"since": now.Add(-time.Hour).UTC(), "policies": []object{
		{"kind": "FQDNNetworkPolicy", "namespace": "shop", "name": "front", "tier": "Namespace", "enforcement": "Enforce", "selected": 6, "conditions": []object{},
			"matches": []object{match(0, "*.example.org", 22550, 2*time.Second), match(1, "images.example.net", 2120, 8*time.Second), match(2, "fonts.example.net", 0, 0)}, "unused": []string{"spec.egress[0].matches[2]"}},
		{"kind": "FQDNNetworkPolicy", "namespace": "shop", "name": "cart", "tier": "Namespace", "enforcement": "Enforce", "selected": 4, "conditions": []object{},
			"matches": []object{match(0, "api.payments.test", 1870, 3*time.Second), match(1, "auth.example.org", 940, 12*time.Second), match(2, "*.example.org", 18, 4*time.Minute)}, "unused": []string{}},
		{"kind": "FQDNNetworkPolicy", "namespace": "shop", "name": "mail", "tier": "Namespace", "enforcement": "Audit", "selected": 1, "conditions": []object{},
			"matches": []object{match(0, "smtp.example.net", 244, 5*time.Minute)}, "unused": []string{}},
		{"kind": "FQDNNetworkPolicy", "namespace": "ci", "name": "old-runners", "tier": "Namespace", "enforcement": "Enforce", "selected": 0,
			"conditions": []object{{"reason": "PartiallyInvalid", "path": "spec.egress[1].matches[0]", "message": `"exa mple.org" is not a name: it has a space; the match is ignored`}},
			"matches":    []object{match(0, "registry.example.com", 0, 0)}, "unused": []string{"spec.egress[0].matches[0]"}},
		{"kind": "ClusterFQDNNetworkPolicy", "name": "no-paste-sites", "tier": "Admin", "enforcement": "Enforce", "selected": 131, "conditions": []object{},
			"matches": []object{match(0, "**.paste.example.com", 41, 70*time.Second)}, "unused": []string{}},
	}}
}

func statusOf(node string, selected, grants int) object {
	return object{
		"node": node, "version": "v9", "inSync": true, "snapshot": 31, "dataplane": object{"name": "nftables", "reason": "nft works on this node"},
		"enforcer": object{"selected": selected, "grants": grants}, "proxy": object{"cacheHits": 48211, "cacheMisses": 5120, "cacheStale": 3}, "audit": object{"written": 51000, "dropped": 0},
	}
}
