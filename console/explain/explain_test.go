package explain

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// said is what of an explanation a test is about.
type said struct {
	Verdict  Verdict
	Reason   string
	Notes    string // joined
	Do       string // joined
	Corefile string // joined
	Manifest bool
}

func of(e Explanation) said {
	s := said{Verdict: e.Verdict, Reason: e.Reason, Notes: strings.Join(e.Notes, "; ")}
	if a := e.Advice; a != nil {
		s.Do, s.Corefile, s.Manifest = strings.Join(a.Do, "; "), strings.Join(a.Corefile, "; "), a.Manifest != ""
	}
	return s
}

const firstOne = "no NetworkPolicy limits the pod's egress yet: with this one, a network plugin that enforces NetworkPolicy denies all else, names too; explain then prints the NetworkPolicy for that engine"

const addIt = "apply the manifest below: policies add up, so nothing else changes for the pod"

func TestExplain(t *testing.T) {
	addr := netip.MustParseAddr
	self := cart().PodRef
	open := func(n, a, ports string, in time.Duration) policy.GrantInfo {
		return policy.GrantInfo{Pod: self, Addr: addr(a), Ports: policy.PortSet(ports), Name: policytest.Name(n), Until: noon.Add(in), By: "shop/base " + n}
	}
	seen := func(n, a string) recent.Sighting {
		return recent.Sighting{Pod: self, Name: policytest.Name(n), Address: addr(a), Asked: noon.Add(-time.Minute)}
	}
	for _, c := range []struct {
		what, to string
		policies string
		pod      func(*policy.Pod)
		facts    func(*Facts)
		want     said
	}{
		{what: "nothing selects it", to: "www.example.org", want: said{Verdict: Allowed, Reason: "no policy selects the pod: everything is allowed"}},
		{
			what: "a policy of the namespace would, and does not select it", to: "www.example.org", policies: strings.ReplaceAll(base, "app: cart", "app: crat"),
			want: said{
				Verdict: Allowed, Reason: "no policy selects the pod: everything is allowed",
				Notes: "shop/base covers www.example.org and does not select the pod: its podSelector is app=crat",
			},
		},
		{
			what: "of another node", to: "www.example.org", policies: base, pod: func(p *policy.Pod) { p.NodeName = "node-2" },
			want: said{Verdict: Elsewhere, Reason: "the pod runs on the node node-2, whose agent knows; ask that one"},
		},
		{
			what: "on the host network", to: "www.example.org", policies: base, pod: func(p *policy.Pod) { p.HostNetwork = true },
			want: said{
				Verdict: Allowed, Reason: "the pod uses the host network: no policy for pods holds for it, and policies for its node decide its connections",
				Notes: "pod shop/cart-1: HostNetwork: the pod uses the host network, so its traffic cannot be distinguished from the node's, and shop/base cannot hold for it; policies for nodes hold for it: write a NodeNetworkPolicy, remove hostNetwork, or select other pods",
			},
		},
		{
			what: "open", to: "www.example.org:443", policies: base,
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{open("www.example.org", "192.0.2.1", "tcp/443", time.Minute), open("www.example.org", "192.0.2.2", "tcp/443", 2*time.Minute)}
			},
			want: said{Verdict: Allowed, Reason: "the pod asked for the name, and 2 addresses are open on tcp/443 until 2026-05-01T12:02:00Z"},
		},
		{
			what: "open by use alone", to: "www.example.org:443", policies: base,
			facts: func(f *Facts) {
				used := open("www.example.org", "192.0.2.1", "tcp/443", time.Minute)
				used.Held = noon.Add(-time.Hour)
				f.Open = []policy.GrantInfo{used}
			},
			want: said{Verdict: Allowed, Reason: "the pod asked for the name, and 1 address is open on tcp/443 until 2026-05-01T12:01:00Z; " +
				"the last answer that held it is of 2026-05-01T11:00:00Z, and only its use keeps it open since"},
		},
		{
			what: "not asked for", to: "a.cdn.test:443", policies: base,
			want: said{
				Verdict: OnceAsked, Reason: `"*.cdn.test" of shop/base (spec.egress[0].matches[1]) covers the name on tcp/443; its addresses are opened when the pod asks for it`,
				Do: "let the pod ask for a.cdn.test again: a program that keeps addresses for longer than they hold has to resolve anew",
			},
		},
		{
			what: "another port", to: "www.example.org:8443", policies: base,
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{open("www.example.org", "192.0.2.1", "tcp/443", time.Minute)}
			},
			want: said{
				Verdict: Denied, Reason: `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org on tcp/443, and not on tcp/8443`,
				Do: addIt + "; or add the port to the rule of shop/base (spec.egress[0])", Manifest: true,
			},
		},
		{
			what: "ICMP", to: "www.example.org/icmp", policies: base,
			want: said{
				Verdict: Denied, Reason: `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org on tcp/443, and not by icmp`,
				Do: "only a rule without ports lets ICMP pass, so the manifest opens every protocol and port; " + addIt + "; or add the port to the rule of shop/base (spec.egress[0])", Manifest: true,
			},
		},
		{
			what: "deeper than the pattern", to: "a.b.cdn.test:443", policies: base,
			want: said{
				Verdict: Denied, Reason: "no match of the pod's policies covers the name",
				Notes: `*.cdn.test of shop/base: its * is exactly one label; "**.cdn.test" covers deeper names`, Do: addIt, Manifest: true,
			},
		},
		{
			what: "the apex of the pattern", to: "cdn.test:443", policies: base,
			want: said{
				Verdict: Denied, Reason: "no match of the pod's policies covers the name",
				Notes: `*.cdn.test of shop/base: it covers what is below cdn.test, and not cdn.test itself; write that as a name of its own`, Do: addIt, Manifest: true,
			},
		},
		{
			what: "below an exact name, NXDOMAIN", to: "a.www.example.org:443", policies: strings.Replace(base, "spec:", "spec:\n  dns: {unmatched: NXDomain}", 1),
			want: said{
				Verdict: Denied, Reason: "no match of the pod's policies covers the name; its question gets NXDOMAIN (dns.unmatched: NXDomain)",
				Notes: `www.example.org of shop/base: it covers www.example.org alone, and nothing below it; "**.www.example.org" covers what is below`, Do: addIt, Manifest: true,
			},
		},
		{
			what: "a type that is withheld", to: "a.cdn.test:443", policies: strings.Replace(base, "spec:", "spec:\n  dns: {types: [TXT, MX]}", 1),
			want: said{Verdict: Denied, Reason: "a query for its addresses gets an empty answer: the policies answer queries of the types MX, TXT alone (dns.types)"},
		},
		{
			what: "too many labels", to: "a.b.c.test:443", policies: strings.Replace(base, "spec:", "spec:\n  dns: {maxLabels: 1}", 1),
			want: said{Verdict: Denied, Reason: "its question gets REFUSED: it has 2 labels below c.test, and the policies allow 1 (dns.maxLabels); list it as name in the tier of the limit, or in an earlier tier"},
		},
		{
			what: "encrypted DNS", to: "a.cdn.test:853", policies: strings.Replace(strings.Replace(base, "spec:", "spec:\n  dns: {encrypted: Deny}", 1), "443", "853", 1),
			want: said{
				Verdict: Denied, Reason: "Namespace policy shop/base (spec.dns.encrypted) denies a.cdn.test",
				Do: "write encrypted: Accept under spec.dns of shop/base, and of the pod's other policies, if the pod may use encrypted DNS",
			},
		},
		{
			what: "a name of encrypted resolvers", to: "_dns.resolver.arpa:443", policies: strings.Replace(base, "spec:", "spec:\n  dns: {encrypted: Deny}", 1),
			want: said{Verdict: Denied, Reason: "its question gets an empty answer, so that clients use no encrypted resolver (dns.encrypted: Deny)"},
		},
		{
			what: "limits that let it pass", to: "a.cdn.test:443", policies: strings.Replace(base, "spec:", "spec:\n  dns: {types: [A], maxLabels: 1, maxQueryRate: 30}", 1),
			want: said{
				Verdict: OnceAsked, Reason: `"*.cdn.test" of shop/base (spec.egress[0].matches[1]) covers the name on tcp/443; its addresses are opened when the pod asks for it`,
				Notes: "queries of other types than A get an empty answer (dns.types); at most 30 queries a minute for names of cdn.test are sent for the pod, the others get REFUSED (dns.maxQueryRate)",
				Do:    "let the pod ask for a.cdn.test again: a program that keeps addresses for longer than they hold has to resolve anew",
			},
		},
		{
			what: "only audited", to: "bank.test:443", policies: base + "---\n" + watch,
			want: said{
				Verdict: Denied, Reason: "only the Audit policy shop/watch covers bank.test, which opens nothing",
				Do: addIt + "; or set `enforcement: Enforce` in shop/watch, if all that it lists is to be open", Manifest: true,
			},
		},
		{
			what: "an Audit pod, covered", to: "bank.test:443", policies: watch,
			want: said{
				Verdict: Allowed,
				Reason:  `only Audit policies select the pod, so it passes; enforced, it would be allowed: "bank.test" of shop/watch (spec.egress[0].matches[0]) covers the name on any; its addresses are opened when the pod asks for it`,
			},
		},
		{
			what: "an Audit pod, not covered", to: "other.test:443", policies: watch,
			want: said{
				Verdict:  WouldDeny,
				Reason:   "only Audit policies select the pod, so it passes; enforced, it would be denied: no match of the pod's policies covers the name",
				Do:       addIt,
				Manifest: true,
			},
		},
		{
			what: "blocked by the guard", to: "www.example.org:443", policies: base,
			facts: func(f *Facts) {
				f.Asked = &recent.Decision{Verdict: audit.Blocked, Asked: noon.Add(-time.Minute), Answers: []netip.Addr{addr("10.1.0.99"), addr("169.254.169.254")}}
			},
			want: said{
				Verdict:  Denied,
				Reason:   `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org, but the guard against rebinding takes 10.1.0.99 out of its answers: pod`,
				Notes:    "the pod last asked for www.example.org at 2026-05-01T11:59:00Z: blocked",
				Do:       "if www.example.org is meant to lead into the cluster, the administrator of the nodes writes the Corefile's line below; no policy can",
				Corefile: "rebind allow www.example.org 10.1.0.99/32; rebind allow www.example.org 169.254.169.254/32",
			},
		},
		{
			what: "blocked for ever", to: "www.example.org:443", policies: base,
			facts: func(f *Facts) {
				f.Asked = &recent.Decision{Verdict: audit.Blocked, Asked: noon, Answers: []netip.Addr{addr("127.0.0.1")}}
			},
			want: said{
				Verdict: Denied,
				Reason:  `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org, but the guard against rebinding takes 127.0.0.1 out of its answers: loopback`,
				Notes:   "the pod last asked for www.example.org at 2026-05-01T12:00:00Z: blocked",
				Do:      "127.0.0.1 can never be opened for a name: it is no other host's address",
			},
		},
		{
			what: "the last question failed", to: "www.example.org:443", policies: base,
			facts: func(f *Facts) {
				f.Asked = &recent.Decision{Verdict: audit.Failed, Asked: noon, Error: "no upstream of zone . answered in 4s"}
			},
			want: said{
				Verdict: OnceAsked,
				Reason:  `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers the name on tcp/443; its addresses are opened when the pod asks for it`,
				Notes:   "the pod last asked for www.example.org at 2026-05-01T12:00:00Z: failed: no upstream of zone . answered in 4s",
				Do:      "let the pod ask for www.example.org again: a program that keeps addresses for longer than they hold has to resolve anew",
			},
		},
		{
			what: "its own address", to: "10.1.0.10:80", policies: base,
			want: said{Verdict: Allowed, Reason: "10.1.0.10 is the pod's own address, which it may always reach"},
		},
		{
			what: "itself", to: "127.0.0.1:80", policies: base,
			want: said{Verdict: Allowed, Reason: "127.0.0.1 is the pod itself: what it sends there never leaves it"},
		},
		{
			what: "its resolver", to: "10.96.0.10:53/udp", policies: base,
			want: said{Verdict: Allowed, Reason: "10.96.0.10 is a resolver: the agent answers in its place"},
		},
		{
			what: "its resolver on another port", to: "10.96.0.10:443", policies: base, facts: func(f *Facts) { f.Inside = "Service" },
			want: said{
				Verdict: Denied, Reason: "no pod of this node resolved the address lately: the pod dials it as an address, or learnt it elsewhere",
				Do:    "10.96.0.10 is the address of a Service: let the pod ask for its name in the cluster, such as NAME.NAMESPACE.svc.cluster.local, and allow that name",
				Notes: "10.96.0.10 is the address of a Service",
			},
		},
		{
			what: "an address that is open", to: "192.0.2.1:443", policies: base,
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{open("www.example.org", "192.0.2.1", "tcp/443", time.Minute)}
			},
			want: said{Verdict: Allowed, Reason: "the pod asked for www.example.org, and the address is open on tcp/443 until 2026-05-01T12:01:00Z"},
		},
		{
			what: "an address that is over", to: "192.0.2.1:443", policies: base,
			facts: func(f *Facts) {
				f.Ended = []policy.GrantInfo{open("www.example.org", "192.0.2.1", "tcp/443", -time.Minute)}
			},
			want: said{
				Verdict: OnceAsked,
				Reason:  `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org, whose address this is, on tcp/443; it is opened when the pod asks for the name`,
				Do:      "let the pod ask for www.example.org again: a program that keeps addresses for longer than they hold has to resolve anew",
			},
		},
		{
			what: "an address on another port", to: "192.0.2.1:80", policies: base,
			facts: func(f *Facts) {
				f.Open = []policy.GrantInfo{open("www.example.org", "192.0.2.1", "tcp/443", time.Minute)}
			},
			want: said{
				Verdict: Denied,
				Reason:  `"www.example.org" of shop/base (spec.egress[0].matches[0]) covers www.example.org on tcp/443, and not on tcp/80`,
				Do:      addIt + "; or add the port to the rule of shop/base (spec.egress[0])", Manifest: true,
			},
		},
		{
			what: "an address of a name that nothing covers", to: "192.0.2.9:443", policies: base,
			facts: func(f *Facts) { f.Seen = []recent.Sighting{seen("bank.test", "192.0.2.9")} },
			want:  said{Verdict: Denied, Reason: "the pod asked for bank.test, and no match of its policies covers that", Do: addIt, Manifest: true},
		},
		{
			what: "an address of which another pod knows a covered name", to: "192.0.2.9:443", policies: base,
			facts: func(f *Facts) {
				s := seen("a.cdn.test", "192.0.2.9")
				s.Pod.Name = "front-1"
				f.Others = []recent.Sighting{s}
			},
			want: said{
				Verdict: OnceAsked,
				Reason:  `"*.cdn.test" of shop/base (spec.egress[0].matches[1]) covers a.cdn.test, whose address this is; this pod never asked for it, and what other pods ask opens nothing for it`,
				Do:      "let the pod ask for a.cdn.test again: a program that keeps addresses for longer than they hold has to resolve anew",
			},
		},
		{
			what: "an address of which another pod knows the name", to: "192.0.2.9:443", policies: base,
			facts: func(f *Facts) {
				s := seen("bank.test", "192.0.2.9")
				s.Pod.Name = "front-1"
				f.Others = []recent.Sighting{s}
			},
			want: said{
				Verdict: Denied, Reason: "this pod never asked for a name of the address; others know it as bank.test, which no match of its policies covers",
				Do: "let the pod itself ask its resolver for the name; names from files, from DNS over HTTPS or from other resolvers pass the agent by; " + addIt, Manifest: true,
			},
		},
		{
			what: "an address that only pods know which are not to be seen", to: "192.0.2.9:443", policies: base, facts: func(f *Facts) { f.Hidden = true },
			want: said{
				Verdict: Denied, Reason: "no pod of this node resolved the address lately: the pod dials it as an address, or learnt it elsewhere",
				Do: "pods that you may not see asked for a name of the address; ask your administrator which, or what the pod's configuration names",
			},
		},
		{
			what: "an address that nobody resolved", to: "192.0.2.9:443", policies: base,
			want: said{
				Verdict: Denied, Reason: "no pod of this node resolved the address lately: the pod dials it as an address, or learnt it elsewhere",
				Do: "policies allow names: let the pod connect to a name, and ask again with that; `namegate audit --pod shop/cart-1` shows which names it asks for" +
					"; if the address itself is meant, whichever pod has it, apply the NetworkPolicy below: the pod may do what its policies allow, and what its NetworkPolicies allow; " + firstOne,
			},
		},
		{
			what: "a name in the cluster", to: "db.shop.svc.cluster.local:5432", policies: base,
			want: said{
				Verdict: Denied, Reason: "no match of the pod's policies covers the name",
				Notes: "names under cluster.local always resolve; their addresses open only where a match covers them, or a NetworkPolicy allows what they lead to", Do: addIt, Manifest: true,
			},
		},
		{
			what: "a short name", to: "db:5432", policies: base,
			want: said{
				Verdict: Denied, Reason: "no match of the pod's policies covers the name",
				Notes: "a name of one label is completed by the pod's search list; in the cluster it may be db.shop.svc.cluster.local: ask with that",
			},
		},
		{
			what: "what is wrong is said", to: "www.example.org:443", policies: base,
			facts: func(f *Facts) {
				f.Failing, f.Trouble = "the kernel is full", []string{"its queries do not reach the agent"}
				f.Open = []policy.GrantInfo{open("www.example.org", "192.0.2.1", "tcp/443", time.Minute)}
			},
			want: said{
				Verdict: Allowed, Reason: "the pod asked for the name, and 1 address is open on tcp/443 until 2026-05-01T12:01:00Z",
				Notes: "the latest policies are not in force: the kernel is full; `namegate status` says more; its queries do not reach the agent",
			},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			pod := cart()
			if c.pod != nil {
				c.pod(&pod)
			}
			f := about(t, pod, manifests(t, c.policies))
			if c.facts != nil {
				c.facts(&f)
			}
			e := Explain(Question{Node: "node-1", To: target(t, c.to)}, f)
			diff.Error(t, c.want, of(e))
			if e.Pod != "shop/cart-1" || e.Node != "node-1" || e.To != target(t, c.to).String() {
				t.Errorf("it is about %s on %s to %s", e.Pod, e.Node, e.To)
			}
		})
	}
}
