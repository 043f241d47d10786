package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	browserSettings "github.com/chromedp/cdproto/browser"
)

// shown is a page of the small cluster.
func shown(t *testing.T, fragment string, l look) (*fake, *tab) {
	t.Helper()
	f := newFake(t)
	f.shopping(time.Now())
	return f, open(t, f.URL, fragment, l)
}

func TestTraffic(t *testing.T) {
	f, p := shown(t, "", desk) // the view of a URL without a fragment
	p.shows("#count", "9 workloads, 20 names")
	p.shows("ul.from .kind-namespace", "shop", "ci", "monitoring", "pay", "Nodes")
	p.shows("ul.from .kind-workload", "cart", "Node/node-2", "web tier=front")
	p.shows("ul.to .kind-name", "telemetry.vendor.test", "203.0.113.200")
	if got := p.count("#picture path.line"); got != len(shoppingEdges) {
		t.Errorf("%d lines, want one an edge: %d", got, len(shoppingEdges))
	}
	// The line between two rows leads from the middle of one to the middle of the other.
	if off := eval[float64](p, `(() => {
		const top = document.querySelector("svg.lines").getBoundingClientRect().top;
		const middles = new Set([...document.querySelectorAll("ul.to .row")].map((r) => { const b = r.getBoundingClientRect(); return Math.round((b.top + b.bottom) / 2 - top); }));
		const ends = [...document.querySelectorAll("#picture path.line")].map((l) => Number(l.getAttribute("d").split(" ").at(-1)));
		return Math.max(...ends.map((e) => Math.min(...[...middles].map((m) => Math.abs(m - e)))));
	})()`); off > 7 {
		t.Errorf("a line ends %v px from the middle of each row", off)
	}
	// No verdict is a colour alone: its line has a pattern, its row a word.
	patterns := map[string]string{}
	for _, e := range shoppingEdges {
		pattern := eval[string](p, "getComputedStyle(document.querySelector('.lines .is-"+e.verdict+"')).strokeDasharray")
		for verdict, other := range patterns {
			if verdict != e.verdict && other == pattern {
				t.Errorf("lines of %s and %s look the same without colour", verdict, e.verdict)
			}
		}
		patterns[e.verdict] = pattern
	}
	p.shows(`[data-row="n:telemetry.vendor.test"] .mark`, "denied")

	p.click(`[data-row="w:shop/app=cart"]`)
	p.shows("#panel-title", "app=cart in shop")
	p.shows("#panel .edge", "denied telemetry.vendor.test")
	p.shows("#panel .edge", "by shop/cart · reason unmatched")
	p.shows("#suggested", "name: cart-suggested")
	p.shows(".notes", "203.0.113.200:22/tcp is left out")
	if !f.wasAsked("/api/suggest?namespace=shop&workload=app%3Dcart") {
		t.Error("the suggestion was not asked for the workload")
	}
	p.click("#panel .edge") // the worst is first
	p.shows("#panel-title", "shop/cart-7d9f4b-9tz5m to telemetry.vendor.test:443")
	p.shows("#explained", "no match of the pod's policies covers the name", "What to do")

	p.click(`[data-row="ns:shop"]`)
	p.wait("document.querySelector('[data-row=\"ns:shop\"]').getAttribute('aria-expanded') === 'false'")
	p.hides(".kind-workload", "cart")
	p.shows(`[data-row="ns:shop"]`, "3 workloads")
}

// TestNamesOfWorkloads: a row begins with the label that names the workload, also where a chart
// writes many labels, and two workloads of a namespace never look the same.
func TestNamesOfWorkloads(t *testing.T) {
	const chart = "app.kubernetes.io/component=%s,app.kubernetes.io/instance=queue,app.kubernetes.io/managed-by=Helm,app.kubernetes.io/name=queue,app.kubernetes.io/version=2.1.0,helm.sh/chart=queue-%d.0"
	f := newFake(t)
	for i, labels := range []string{fmt.Sprintf(chart, "broker", 4), fmt.Sprintf(chart, "worker", 4), fmt.Sprintf(chart, "worker", 5), "k8s-app=dns", "tier=back", "app=x"} {
		f.edge(time.Now(), use{"queues", labels, fmt.Sprint("p-", i), "queue.example.org", "192.0.2.99", 443, "allowed", 1, 0, "", "", ""})
	}
	p := open(t, f.URL, "", desk)
	worker := func(version int) string { return fmt.Sprintf(chart, "worker", version) }
	p.shows("ul.from .kind-workload", "queue component=broker version=2.1.0", worker(4), worker(5), "dns", "tier=back", "x")
	if got := p.count(`ul.from .kind-workload[aria-label^="app.kubernetes.io/component=broker"][title^="app.kubernetes.io/component=broker"]`); got != 1 {
		t.Errorf("%d rows have all labels as their title and for screen readers", got)
	}
}

func TestLog(t *testing.T) {
	f, p := shown(t, "#/log", desk)
	p.shows("tr[data-row]", "denied", "shop/cart-7d9f4b-9tz5m", "telemetry.vendor.test:443", "- no match covers the name")
	p.shows("tr[data-row]", "node node-2 (uid 42)")
	p.shows("tr[data-row]", "DNS A")
	eval[bool](p, `[...document.querySelectorAll("tr[data-row]")].find((r) => r.textContent.includes("telemetry")).click() ?? true`)
	p.shows("#panel", "tcp 203.0.113.66:443 telemetry.vendor.test - no match covers the name", "denied lately", "name: allow-telemetry.vendor.test", "name: cart-suggested")
	if want := "/api/explain?pod=shop%2Fcart-7d9f4b-9tz5m&target=telemetry.vendor.test&port=443&protocol=tcp"; !f.wasAsked(want) {
		t.Errorf("not asked: %s", want)
	}
	call(p, browserSettings.SetPermission, browserSettings.SetPermissionParams{Permission: &browserSettings.PermissionDescriptor{Name: "clipboard-read"}, Setting: browserSettings.PermissionSettingGranted})
	p.click("#panel .copy")
	p.shows("#panel .copy", "Copied")
	if got := eval[string](p, "navigator.clipboard.readText()"); !strings.HasPrefix(got, "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy") {
		t.Errorf("copied: %s", got)
	}
}

// TestLogOfIngress: a line of a connection to a pod names its source, and asks why from there.
func TestLogOfIngress(t *testing.T) {
	f, p := shown(t, "#/log", desk)
	p.wait("document.querySelector('tr[data-row]')")
	line := object{"v": 1, "kind": "flow", "time": "2026-05-01T12:00:00.250000Z", "node": "node-1", "verdict": "denied", "direction": "ingress", "pod": object{"namespace": "shop", "name": "db-0", "ip": "10.1.0.10"},
		"protocol": "tcp", "source": object{"address": "10.2.0.9", "pod": "lab/probe"}, "destination": object{"address": "10.1.0.10", "port": 5432}, "reason": "isolated", "policies": []string{"shop/closed"}, "count": 1}
	f.set(func() { f.answers["explain"] = object{"text": "denied", "explanation": object{}} })
	f.push("lines", object{"lines": []object{{"id": 100000, "text": "tcp from 10.2.0.9 (lab/probe) to 10.1.0.10:5432 - no NetworkPolicy allows it", "line": line}}})
	p.shows("tr[data-row='100000'] .name", "from lab/probe to :5432")
	p.click("tr[data-row='100000']")
	p.shows("#panel-title", "lab/probe to shop/db-0:5432")
	p.shows("#panel .facts", "ingress", "10.2.0.9", "shop/closed")
	p.shows("#explained", "denied")
	if want := "/api/explain?pod=shop%2Fdb-0&from=lab%2Fprobe&port=5432&protocol=tcp"; !f.wasAsked(want) || eval[bool](p, "document.querySelector('#write') !== null") {
		t.Errorf("%s was not asked, or a policy is suggested", want)
	}
}

// TestServerNames: a line has the name that a client claimed, as text, and a policy the rules that require it.
func TestServerNames(t *testing.T) {
	f, p := shown(t, "#/log", desk)
	p.wait("document.querySelector('tr[data-row]')")
	const text = `tcp 192.0.2.10:443 www.example.org - it names no server that the rule allows (but "<img src=x>") - by shop/front spec.egress[0]`
	line := object{"v": 1, "kind": "flow", "time": "2026-05-01T12:00:00.250000Z", "node": "node-1", "verdict": "denied", "direction": "egress", "pod": object{"namespace": "shop", "name": "front-1", "ip": "10.1.0.10"},
		"protocol": "tcp", "destination": object{"address": "192.0.2.10", "port": 443}, "names": []object{{"name": "www.example.org"}}, "reason": "serverName", "server_name": "<img src=x>",
		"tier": "Namespace", "policy": "shop/front", "rule": "spec.egress[0]", "policies": []string{"shop/front"}, "count": 1}
	f.set(func() { f.answers["explain"] = object{"text": "checked", "explanation": object{}} })
	f.push("lines", object{"lines": []object{{"id": 100000, "text": text, "line": line}}})
	p.shows("tr[data-row='100000'] .result", text)
	p.click("tr[data-row='100000']")
	p.shows("#panel .facts", "Server name", `"<img src=x>"`, "(Namespace) shop/front spec.egress[0]")
	if n := p.count("#page img"); n > 0 {
		t.Errorf("the claimed name became %d elements", n)
	}
	f.set(func() {
		f.answers["policies"] = object{"since": time.Now(), "policies": []object{{"kind": "FQDNNetworkPolicy", "namespace": "shop", "name": "front", "selected": 1, "conditions": []object{}, "unused": []string{},
			"matches": []object{{"path": "spec.egress[0].matches[0]", "match": "www.example.org", "hits": 1, "serverName": "Require"}}}}}
	})
	p.show("#/policies")
	p.shows(".card tr", "www.example.org serverName: Require")
}

func TestOlderLines(t *testing.T) {
	f := newFake(t)
	for i := range 450 {
		f.line(i+1, time.Now(), shoppingEdges[0])
	}
	p := open(t, f.URL, "#/log", desk)
	for _, want := range []int{200, 400, 450} {
		p.wait("document.querySelectorAll('tr[data-row]').length === %d", want)
		if want < 450 {
			p.click("#older")
		}
	}
	p.wait("document.querySelector('#older') === null")
}

func TestGrants(t *testing.T) {
	_, p := shown(t, "#/grants", desk)
	p.shows("tr[data-row]", "shop/cart-7d9f4b-9tz5m api.payments.test 203.0.113.20 tcp/443")
	p.shows("tr[data-row]", "shop/front *.example.org")
	p.shows("tr[data-row]", "by use for 5m")
	// The time counts down between two answers.
	const left = `document.querySelector('[data-row*="ledger-0 bank.test"] .time-left').textContent`
	first := eval[string](p, left)
	p.wait("%s !== %s", left, quoted(first))
	p.click("tr[data-row]")
	p.shows("#panel", "Until", "no match of the pod's policies covers the name")
}

func TestGrantEnds(t *testing.T) {
	f := newFake(t)
	f.answers["grants"] = object{"grants": []object{{"node": "node-1", "namespace": "shop", "pod": "cart", "name": "www.example.org", "address": "192.0.2.10", "ports": "tcp/443", "until": time.Now().Add(3 * time.Second)}}}
	p := open(t, f.URL, "#/grants", desk)
	p.shows("tr[data-row]", "ends soon")
	p.shows(".empty", "Nothing is open.")
}

func TestPolicies(t *testing.T) {
	_, p := shown(t, "#/policies", desk)
	p.shows("#count", "5 policies, 2 unused matches")
	p.shows(".card", "shop/front FQDNNetworkPolicy Enforce selects 6 pods")
	p.shows(".card tr", "*.example.org 22,550")
	p.shows(".card tr.unused", "fonts.example.net unused")
	p.shows(".card", "selects nothing")
	p.shows(".card .warn", "PartiallyInvalid spec.egress[1].matches[0]")
	p.shows(".card", "no-paste-sites ClusterFQDNNetworkPolicy Admin Enforce selects 131 pods")
	p.click(".card .lines")
	p.wait("location.hash === '#/log?policy=shop%%2Ffront'")
	p.shows("tr[data-row]", "cdn.example.org")
	p.hides("tr[data-row]", "telemetry")
}

func TestNodes(t *testing.T) {
	f := newFake(t)
	f.shopping(time.Now())
	f.agents[1]["problems"] = []object{{"what": "queries lost", "message": "those of shop/cart do not reach the agent: dropped"}}
	f.agents[2] = object{"node": "node-3", "state": "slow", "message": "no answer for 10 s", "problems": []object{}}
	p := open(t, f.URL, "#/nodes", desk)
	p.shows("#count", "3 agents, 2 with something wrong")
	p.shows("nav .count", "2")
	p.shows(".card.wrong", "node-2", "queries lost those of shop/cart do not reach the agent: dropped", "no answer for 10 s")
	p.shows(".card", "node-1 well v9 in sync yes (snapshot 31) dataplane nftables selected pods 42")
	if eval[bool](p, "document.querySelector('.cards').firstElementChild.textContent.includes('node-1')") {
		t.Error("an agent with nothing wrong is first")
	}
}

// TestRefusals: the server's words are shown, and what was shown stays.
func TestRefusals(t *testing.T) {
	f := newFake(t)
	f.shopping(time.Now())
	for path, fragment := range map[string]string{"lines": "#/log", "grants": "#/grants", "policies": "#/policies"} {
		f.set(func() { f.failures = map[string]string{path: "no access; ask an administrator for " + path} })
		p := open(t, f.URL, fragment, desk)
		p.shows("[role=alert]", "no access; ask an administrator for "+path)
	}
	f.set(func() {
		f.failures = map[string]string{"session": "the token is missing; open the address that `namegate ui` printed"}
	})
	p := open(t, f.URL, "", desk)
	p.shows("[role=alert]", "open the address that `namegate ui` printed")
}

// TestHostileText: texts of pods, names and policies are text.
func TestHostileText(t *testing.T) {
	const hostile = `<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'"&amp;`
	f := newFake(t)
	now := time.Now()
	f.session["context"] = hostile
	f.agents = []object{{"node": hostile, "state": hostile, "message": hostile, "version": hostile, "problems": []object{{"what": hostile, "message": hostile}}}}
	e := use{"n" + hostile, hostile, hostile, hostile, hostile, 443, "denied", 3, 1, hostile, "", "unmatched"}
	f.edge(now, e)
	f.line(1, now, e)["text"] = hostile
	f.answers["explain"] = object{"text": hostile + "\n---\n" + hostile, "explanation": object{}}
	f.answers["suggest"] = object{"yaml": hostile, "notes": []string{hostile}}
	f.answers["grants"] = object{"grants": []object{{"node": hostile, "namespace": hostile, "pod": hostile, "name": hostile, "address": hostile, "ports": hostile, "by": hostile, "until": now.Add(time.Minute)}}}
	f.answers["policies"] = object{"since": now, "policies": []object{{"kind": hostile, "namespace": hostile, "name": hostile, "tier": hostile, "enforcement": hostile, "conditions": []object{{"reason": hostile, "message": hostile}},
		"matches": []object{{"path": hostile, "match": hostile, "hits": 1}}, "unused": []string{}}}}
	for _, v := range []struct{ fragment, selector string }{
		{"#/traffic", "ul.to .row"}, {"#/log", "tr[data-row]"}, {"#/grants", "tr[data-row]"}, {"#/policies", ".card"}, {"#/nodes", ".card"},
	} {
		p := open(t, f.URL, v.fragment, desk)
		p.shows(v.selector, hostile)
		if v.fragment != "#/policies" && v.fragment != "#/nodes" {
			p.click(v.selector)
			p.shows("#panel", hostile)
			p.wait("!document.querySelector('#panel [role=status].hint')")
		}
		if n := p.count("#page img, #page script"); n > 0 || eval[bool](p, "Boolean(window.hurt)") {
			t.Errorf("%s: text became %d elements", v.fragment, n)
		}
	}
}

// TestMany: the page is bounded however large the cluster is.
func TestMany(t *testing.T) {
	f := newFake(t)
	now := time.Now()
	for n := range 5000 {
		for k := range 4 {
			w := (n*7 + k*251) % 1000
			f.edge(now, use{fmt.Sprintf("team-%02d", w%50), fmt.Sprintf("app=w%d", w), "", fmt.Sprintf("n%d.example.org", n), "", 443, []string{"allowed", "denied", "would-deny", "failed"}[k], 1 + (n*31+k)%900, 0, "", "", ""})
		}
	}
	f.agents = []object{{"node": "node-1", "state": "well", "problems": []object{}}}
	p := open(t, f.URL, "#/traffic", desk)
	p.shows("#count", "1,000 workloads, 5,000 names")
	const most = 6000 // elements, of which a line is one and a row about 12
	bounded := func(when string) {
		t.Helper()
		if n := p.count("*"); n > most {
			t.Errorf("%s: %d elements, want at most %d", when, n, most)
		}
	}
	bounded("folded")
	p.picture("traffic-many")
	p.shows(".kind-more", "… and 10 more namespaces", "… and 4,964 more names")
	p.click(`[data-row="ns:` + eval[string](p, "document.querySelector('.kind-namespace').dataset.row.slice(3)") + `"]`)
	p.shows(".kind-more", "… and 8 more workloads")
	p.click(`[data-row="more:names"]`)
	p.shows(".kind-more", "… and 4,939 more names")
	for range 8 {
		p.click(`[data-row="more:names"]`)
	}
	p.shows(".kind-more", "more names: filter to see them")
	bounded("with all that can be asked for")
	// A filter finds what is hidden.
	eval[bool](p, "(location.hash = '#/traffic?name=n4321.') !== ''")
	p.shows("ul.to .row", "n4321.example.org")
	p.shows("#count", "4 workloads, 1 name")
	bounded("filtered")
}
