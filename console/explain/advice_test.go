package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestAdviceHelps: under the policies and the manifest that is advised the answer is
// yes, the pod is selected by no fewer, and nothing else is opened.
func TestAdviceHelps(t *testing.T) {
	addr := netip.MustParseAddr
	for _, c := range []struct {
		what, to, policies string
		labels             map[string]string
		facts              func(*Facts)
	}{
		{what: "a name that is taken", to: "bank.test:443", policies: base + "---\n" + strings.Replace(watch, "name: watch", "name: allow-bank.test", 1)},
		{what: "odd characters", to: "_sip._tcp.bank.test:443", policies: base},
		{what: "a long name", to: strings.Repeat("abcdefghi.", 24) + "bank.test:443", policies: base},
		{what: "an address", to: "192.0.2.9:443", policies: base, facts: func(f *Facts) {
			f.Seen = []recent.Sighting{{Pod: f.Pod.PodRef, Name: policytest.Name("bank.test"), Address: addr("192.0.2.9"), Asked: noon}}
		}},
		{what: "a pod without labels of its workload", to: "bank.test:443", policies: strings.Replace(base, "{matchLabels: {app: cart}}", "{}", 1), labels: map[string]string{"pod-template-hash": "1"}},
		{what: "others would be selected", to: "bank.test:443", policies: base, facts: func(f *Facts) { f.Free = []string{"shop/other"} }},
		{what: "what was denied", to: "bank.test", policies: base, facts: func(f *Facts) {
			f.Flows = []audit.Flow{{Dialled: netip.MustParseAddrPort("192.0.2.9:8443"), Protocol: policy.TCP, Names: []audit.FlowName{{Name: policytest.Name("bank.test")}}}}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			pod := cart()
			if c.labels != nil {
				pod.Labels = c.labels
			}
			policies := manifests(t, c.policies)
			f := about(t, pod, policies)
			if c.facts != nil {
				c.facts(&f)
			}
			q := Question{To: target(t, c.to)}
			before := Explain(q, f)
			if before.Verdict != Denied && before.Verdict != WouldDeny || before.Advice == nil || before.Advice.Manifest == "" {
				t.Fatalf("it is %s with the advice %+v", before.Verdict, before.Advice)
			}
			more := manifests(t, before.Advice.Manifest)
			if len(more) != 1 || more[0].Kind != v1alpha1.Kind || more[0].Namespace != "shop" {
				t.Fatalf("the manifest is %s", before.Advice.Manifest)
			}
			if slices.ContainsFunc(policies, func(p *v1alpha1.FQDNNetworkPolicy) bool { return p.Name == more[0].Name }) {
				t.Fatalf("the manifest would replace %s", more[0].Name)
			}
			if problems := fqdnnp.Validate(more[0]); len(problems) > 0 {
				t.Fatalf("the manifest has problems: %v", problems)
			}
			after := about(t, pod, append(policies, more...))
			diff.Equal(t, f.View.Enforced, after.View.Enforced, "the pod is default-deny")
			after.Seen, after.Others = f.Seen, f.Others
			if got := Explain(q, after); got.Verdict != OnceAsked && got.Verdict != Allowed {
				t.Errorf("with the manifest it is %s: %s\n%s", got.Verdict, got.Reason, before.Advice.Manifest)
			}
			if d := after.View.Decide(policytest.Name("unheard-of.test")); len(d.Matches) > 0 {
				t.Errorf("the manifest opens too much:\n%s", before.Advice.Manifest)
			}
		})
	}
}

// TestManifest: the text of one.
func TestManifest(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	f.Flows = []audit.Flow{
		{Dialled: netip.MustParseAddrPort("192.0.2.9:8443"), Protocol: policy.TCP, Names: []audit.FlowName{{Name: policytest.Name("bank.test")}}, Time: noon, Last: noon, Count: 2, Reason: audit.ReasonUnmatched},
		{Dialled: netip.MustParseAddrPort("192.0.2.8:1"), Protocol: policy.TCP},
	}
	e := Explain(Question{To: target(t, "bank.test")}, f)
	want := `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  name: allow-bank.test
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: cart
  egress:
  - matches:
    - name: bank.test
    ports:
    - protocol: TCP
      port: 8443
`
	diff.Error(t, want, e.Advice.Manifest)
	flows := []Flow{{Time: noon, Last: noon, Verdict: "denied", Protocol: "tcp", Address: "192.0.2.9", Port: 8443, Names: []string{"bank.test"}, Reason: "unmatched", Count: 2}}
	diff.Error(t, flows, e.Flows)
}

// TestNoLabel: without a label that identifies the workload, and without a policy with a
// usable selector, no policy for all pods is advised.
func TestNoLabel(t *testing.T) {
	pod := cart()
	pod.Labels = nil
	f := about(t, pod, manifests(t, strings.Replace(base, "{matchLabels: {app: cart}}", "{}", 1)))
	f.Policies = nil // gone by now
	e := Explain(Question{To: target(t, "bank.test:443")}, f)
	if e.Advice == nil || e.Advice.Manifest != "" || !strings.Contains(strings.Join(e.Advice.Do, ";"), "a label of their own") {
		t.Errorf("the advice is %+v", e.Advice)
	}
}

// TestCorefileLines: the advised line is valid in a Corefile, and its guard lets the
// address through.
func TestCorefileLines(t *testing.T) {
	for _, a := range []string{"10.1.0.99", "169.254.169.254", "fd00:ec2::254", "100.100.100.200"} {
		f := about(t, cart(), manifests(t, base))
		addr := netip.MustParseAddr(a)
		guard := rebind.New(corefile.Default(), rebind.Addresses{Services: []netip.Addr{netip.MustParseAddr("10.1.0.99")}})
		f.Blocked = func(n fqdn.Name, a netip.Addr) string { return guard.Blocked(n, a, nil) }
		f.Asked = &recent.Decision{Verdict: audit.Blocked, Asked: noon, Answers: []netip.Addr{addr}}
		q := Question{To: target(t, "www.example.org:443")}
		e := Explain(q, f)
		if e.Verdict != Denied || e.Advice == nil || len(e.Advice.Corefile) != 1 || e.Advice.Manifest != "" {
			t.Fatalf("%s: %s, %+v", a, e.Verdict, e.Advice)
		}
		c, err := corefile.Parse("Corefile", ". {\n forward . 192.0.2.53\n "+e.Advice.Corefile[0]+"\n}\n")
		fatal.If(t, err, a)
		guard = rebind.New(c, rebind.Addresses{Services: []netip.Addr{netip.MustParseAddr("10.1.0.99")}})
		if got := Explain(q, f); got.Verdict != OnceAsked {
			t.Errorf("%s: with %q it is %s: %s", a, e.Advice.Corefile[0], got.Verdict, got.Reason)
		}
		if guard.Blocked(policytest.Name("evil.test"), addr, nil) == "" {
			t.Errorf("%s: %q opens it to other names", a, e.Advice.Corefile[0])
		}
	}
}

// TestNamesThatLeaveTheCluster: the name outside to which a name of the cluster leads is explained in its
// place, and an address outside, of a name of the cluster, is open by an exception alone.
func TestNamesThatLeaveTheCluster(t *testing.T) {
	const inside = "partner.shop.svc.cluster.local"
	for _, c := range []struct {
		left, address string
		open          bool
		want          Verdict
		says, advice  string
	}{
		{"", "10.1.0.99", false, OnceAsked, "*.svc.cluster.local", ""},
		{"", "198.51.100.1", false, Denied, "takes 198.51.100.1 out of its answers: outside", "rebind allow " + inside + " 198.51.100.1/32"},
		{"bank.test", "198.51.100.1", false, Denied, "no match of the pod's policies covers the name", "bank.test"},
		{"www.example.org", "198.51.100.1", false, OnceAsked, "covers the name on any", ""},
		{"www.example.org", "198.51.100.1", true, Allowed, "1 address is open on any", ""},
		{"www.example.org", "10.1.0.99", false, Denied, "takes 10.1.0.99 out of its answers: service", "rebind allow www.example.org 10.1.0.99/32"},
	} {
		f := about(t, cart(), manifests(t, `
metadata: {name: base, namespace: shop}
spec: {podSelector: {}, egress: [{matches: [{pattern: "*.*.svc.cluster.local"}, {name: www.example.org}]}]}
`))
		guard, a := rebind.New(corefile.Default(), rebind.Addresses{Services: []netip.Addr{netip.MustParseAddr("10.1.0.99")}}), netip.MustParseAddr(c.address)
		f.Blocked = func(n fqdn.Name, a netip.Addr) string { return guard.Blocked(n, a, nil) }
		f.Asked = &recent.Decision{Name: policytest.Name(inside), Asked: noon, Answers: []netip.Addr{a}}
		if c.left != "" {
			f.Asked.Left = policytest.Name(c.left)
		}
		if c.open {
			f.Open = append(f.Open, policy.GrantInfo{Pod: f.Pod.PodRef, Name: f.Asked.Left, Addr: a, Ports: policy.AnyPort, Until: noon.Add(time.Minute)})
		}
		e := Explain(Question{To: target(t, inside+":443")}, f)
		notes := strings.Join(e.Notes, ";")
		noted := strings.Contains(notes, inside+" leads to "+c.left+", which is no name of the cluster") && strings.Contains(notes, "the pod last asked for "+inside)
		advice := ""
		if e.Advice != nil {
			advice = strings.Join(e.Advice.Corefile, "") + e.Advice.Manifest
		}
		if e.Verdict != c.want || !strings.Contains(e.Reason, c.says) || noted != (c.left != "") || !strings.Contains(advice, c.advice) || (advice == "") != (c.advice == "") {
			t.Errorf("%+v: %s: %s, notes %q, advice %q", c, e.Verdict, e.Reason, e.Notes, advice)
		}
	}
}
