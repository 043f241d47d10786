package compile

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// limitsInput has the pod web, FQDNNetworkPolicies that select it, and cluster policies that
// select every pod, by the texts of their specs.
func limitsInput(t *testing.T, policies, cluster []string) (in Input) {
	t.Helper()
	in.Pods = []policy.Pod{policytest.Pod("web", "10.1.0.5")}
	in.Namespaces = map[string]map[string]string{"shop": {}}
	for i, text := range policies {
		p := v1alpha1.FQDNNetworkPolicy{}
		p.Namespace, p.Name = "shop", fmt.Sprintf("p%d", i)
		fatal.If(t, yaml.UnmarshalStrict([]byte(text), &p.Spec))
		in.Policies = append(in.Policies, &p)
	}
	for i, text := range cluster {
		in.ClusterPolicies = append(in.ClusterPolicies, aCluster(t, fmt.Sprintf("c%d", i), "{subject: {namespaces: {}}, priority: 1, "+strings.TrimPrefix(text, "{")))
	}
	return in
}

func TestDNSLimits(t *testing.T) {
	const tight = "types: [A, AAAA, HTTPS, SVCB, SRV, MX, CNAME, PTR]"
	wild := func(dns string) string {
		return `{egress: [{matches: [{pattern: "**.wild.test"}, {name: a.b.c.exact.test}]}], dns: {` + dns + "}}"
	}
	for _, test := range []struct {
		what              string
		policies, cluster []string
		// asks are "NAME TYPE" and the reply, with the limit and the rate.
		asks map[string]string
	}{
		{"no limit", []string{wild("")}, nil, map[string]string{"a.b.c.d.wild.test TXT": "Resolve", "other.test NULL": "Resolve"}},
		{"types", []string{wild(tight)}, nil, map[string]string{
			"x.wild.test A": "Resolve", "x.wild.test HTTPS": "Resolve", "x.wild.test TXT": "NoData types", "x.wild.test NULL": "NoData types", "a.b.c.exact.test ANY": "NoData types",
			"other.test TXT": "NoData types", "db.shop.svc.cluster.local TXT": "NoData types",
		}},
		{"a name without an answer has no types", []string{wild(tight + ", unmatched: NXDomain")}, nil, map[string]string{"x.wild.test TXT": "NoData types", "other.test TXT": "NXDomain"}},
		{"types intersect", []string{wild("types: [A, TXT, MX]"), wild("types: [TXT, A, AAAA]"), wild("")}, nil, map[string]string{
			"x.wild.test A": "Resolve", "x.wild.test TXT": "Resolve", "x.wild.test MX": "NoData types", "x.wild.test AAAA": "NoData types",
		}},
		{"a type that is unknown allows none", []string{wild("types: [TXTT]")}, nil, map[string]string{"x.wild.test A": "NoData types"}},
		{"an empty list allows none", []string{wild("types: []")}, nil, map[string]string{"x.wild.test A": "NoData types"}},
		{"Audit limits nothing", []string{wild(""), strings.Replace(wild("types: [A], maxLabels: 1, maxQueryRate: 1"), "{", "{enforcement: Audit, ", 1)}, nil,
			map[string]string{"a.b.c.wild.test TXT": "Resolve"}},
		{"labels", []string{wild("maxLabels: 2")}, nil, map[string]string{
			"a.b.wild.test A": "Resolve", "a.b.c.wild.test A": "Refuse labels", "a.b.c.exact.test A": "Resolve", "b.c.d.exact.test A": "Refuse labels",
			"a.b.c.svc.cluster.local A": "Resolve", "4.3.2.10.in-addr.arpa PTR": "Resolve", "5.4.3.2.10.in-addr.arpa PTR": "Refuse labels",
		}},
		{"the strictest of several", []string{wild("maxLabels: 3, maxQueryRate: 9"), wild("maxLabels: 2, maxQueryRate: 10")}, nil, map[string]string{
			"a.b.wild.test A": "Resolve 9 for wild.test", "a.b.c.wild.test A": "Refuse labels",
		}},
		{"a rate", []string{wild("maxQueryRate: 60")}, nil, map[string]string{
			"a.b.wild.test A": "Resolve 60 for wild.test", "other.example.co.uk A": "Resolve 60 for example.co.uk", "a.b.c.exact.test A": "Resolve", "x.svc.cluster.local A": "Resolve",
			"4.3.2.10.in-addr.arpa PTR": "Resolve 60 for 10.in-addr.arpa",
		}},
		{"a number that cannot be is the strictest", []string{wild("maxLabels: 0, maxQueryRate: -1")}, nil, map[string]string{"a.wild.test A": "Resolve 1 for wild.test", "a.b.wild.test A": "Refuse labels"}},
		{"a cluster policy and a policy", []string{wild("types: [A, TXT], maxLabels: 3")}, []string{"{tier: Admin, dns: {types: [A, MX], maxLabels: 2, maxQueryRate: 5}, egress: [{action: Pass}]}"}, map[string]string{
			"x.wild.test TXT": "NoData types", "x.wild.test MX": "NoData types", "x.wild.test A": "Resolve 5 for wild.test", "a.b.c.wild.test A": "Refuse labels",
		}},
		{"what the Admin tier decides no policy limits", []string{wild("types: [A], maxLabels: 1, maxQueryRate: 1")},
			[]string{`{tier: Admin, egress: [{action: Accept, matches: [{pattern: "**.corp.test"}]}], dns: {types: [A, TXT]}}`}, map[string]string{
				"a.b.c.corp.test TXT": "Resolve", "a.b.c.corp.test MX": "NoData types", "a.b.wild.test A": "Refuse labels",
			}},
		{"an exact name of a rule that denies is limited", []string{wild("maxLabels: 1")},
			[]string{"{tier: Admin, dns: {denied: Resolve}, egress: [{action: Deny, matches: [{name: a.b.denied.test}]}, {action: Pass, matches: [{name: a.b.passed.test}]}]}"}, map[string]string{
				"a.b.denied.test A": "Resolve denied", "a.b.passed.test A": "Resolve",
			}},
		{"an exact name of a namespace lifts no limit of the Admin tier", []string{wild("maxLabels: 1, maxQueryRate: 1")},
			[]string{"{tier: Admin, dns: {maxLabels: 3, maxQueryRate: 5}, egress: [{action: Pass}]}"}, map[string]string{
				"a.b.c.exact.test A": "Resolve 5 for exact.test", "a.wild.test A": "Resolve 1 for wild.test",
			}},
		{"nor its labels", []string{wild("")}, []string{"{tier: Admin, dns: {maxLabels: 2}, egress: [{action: Pass}]}"}, map[string]string{"a.b.c.exact.test A": "Refuse labels"}},
		{"an exact name of the Admin tier lifts the limits of both", []string{wild("maxLabels: 1, maxQueryRate: 1")},
			[]string{"{tier: Admin, dns: {maxLabels: 1, maxQueryRate: 1}, egress: [{action: Pass, matches: [{name: a.b.passed.test}]}]}"}, map[string]string{
				"a.b.passed.test A": "Resolve", "a.b.c.exact.test A": "Refuse labels",
			}},
		{"what is denied stays denied", []string{wild("types: [A]")}, []string{"{tier: Admin, egress: [{action: Deny, matches: [{name: x.wild.test}]}]}"}, map[string]string{"x.wild.test TXT": "NXDomain denied"}},
		{"the Baseline tier where no policy selects", nil, []string{"{tier: Baseline, egress: [{action: Pass}], dns: {types: [A], maxLabels: 1}}"}, map[string]string{
			"x.wild.test TXT": "NoData types", "a.b.wild.test A": "Refuse labels",
		}},
		{"the Baseline tier where one does", []string{wild("")}, []string{"{tier: Baseline, egress: [{action: Pass}], dns: {types: [A], maxLabels: 1}}"}, map[string]string{
			"x.wild.test TXT": "Resolve", "a.b.wild.test A": "Resolve",
		}},
	} {
		s := New().Compile(limitsInput(t, test.policies, test.cluster))
		got := map[string]string{}
		for ask := range test.asks {
			name, qtype, _ := strings.Cut(ask, " ")
			d := policy.Decide(s.Views[0], policy.Query{Name: policytest.Name(name), Type: dns.StringToType[qtype], InCluster: strings.HasSuffix(name, ".cluster.local")})
			words := []string{d.Reply.String()}
			if d.Denied != nil {
				words = append(words, "denied")
			}
			if d.Limit != policy.NoLimit {
				words = append(words, d.Limit.String())
			}
			if d.Rate.PerMinute > 0 {
				words = append(words, fmt.Sprintf("%d for %s", d.Rate.PerMinute, d.Rate.Zone))
			}
			got[ask] = strings.Join(words, " ")
		}
		diff.Error(t, test.asks, got, test.what)
	}
}

// TestDNSLimitsChange: a changed limit is a new view, also of addresses in conflict.
func TestDNSLimitsChange(t *testing.T) {
	specs := []string{"{}", "{dns: {types: [A]}}", "{dns: {types: [A, MX]}}", "{dns: {maxLabels: 3}}", "{dns: {maxLabels: 4}}", "{dns: {maxQueryRate: 4}}", "{}", "{dns: {types: []}}"}
	for _, conflict := range []bool{false, true} {
		c := New()
		var last *policy.View
		for _, spec := range specs {
			in := limitsInput(t, []string{spec}, nil)
			if conflict {
				in.Pods = append(in.Pods, policytest.Pod("other", "10.1.0.5"))
			}
			s := c.Compile(in)
			v := s.View(in.Pods[0].IPs[0])
			if v == last {
				t.Errorf("%s: the view is the last one (conflict: %t)", spec, conflict)
			}
			diff.Equal(t, v, c.Compile(in).View(in.Pods[0].IPs[0]), spec, "the view without a change; conflict", conflict)
			last = v
		}
		if !last.Limits.Withheld.Has(dns.TypeA) {
			t.Errorf("%+v", last.Limits)
		}
	}
}

// TestAnEmptyListOfTypesIsAChange: a cluster policy without types allows all, one with an empty list none.
func TestAnEmptyListOfTypesIsAChange(t *testing.T) {
	c, in := New(), besideInput(nil)
	for _, limits := range []string{"", "dns: {types: []}, "} {
		in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{aCluster(t, "p", "{tier: Admin, priority: 1, "+limits+everyPod+", egress: [{action: Pass}]}")}
		diff.Equal(t, limits != "", c.Compile(in).Views[0].AdminLimits.Withheld.Has(dns.TypeA), limits, "withheld")
	}
}

func TestDNSLimitProblems(t *testing.T) {
	for spec, want := range map[string][]string{
		"{dns: {types: [A, a]}}":                              {`spec.dns.types[1] "a" is unknown; write one of A, NS, CNAME`},
		"{dns: {types: []}}":                                  {"spec.dns.types the list is empty; write the types, or leave it out for all"},
		"{dns: {maxLabels: 127, maxQueryRate: 0}}":            {"spec.dns.maxLabels 127; write 1 to 126 (1 counts)", "spec.dns.maxQueryRate 0; write 1 to 600000 (1 counts)"},
		"{dns: {types: [" + strings.Repeat("A, ", 33) + "]}}": {"spec.dns.types 33 types; write at most 32 (the rest is not allowed)"},
	} {
		for _, cluster := range []bool{false, true} {
			in := limitsInput(t, []string{spec}, nil)
			if cluster {
				in = limitsInput(t, nil, []string{"{tier: Admin, egress: [{action: Pass}], " + strings.TrimPrefix(spec, "{")})
			}
			var got []string
			for _, p := range New().Compile(in).Problems {
				got = append(got, p.Path+" "+p.Message)
				diff.Equal(t, policy.ReasonPartiallyInvalid, p.Reason, p)
			}
			if !slices.EqualFunc(got, want, strings.HasPrefix) {
				t.Errorf("%s: %q, want %q", spec, got, want)
			}
		}
	}
}

// TestQueryTypesOfTheSchema: a list in the schema has the types that the model knows.
func TestQueryTypesOfTheSchema(t *testing.T) {
	text, err := os.ReadFile("../../crds/namegate.io_fqdnnetworkpolicies.yaml")
	fatal.If(t, err)
	_, list, found := strings.Cut(string(text), "description: QueryType is the type of a DNS query.\n                      enum:\n")
	list, _, ends := strings.Cut(list, "                      type: string")
	want := policy.QueryTypeNames()
	slices.Sort(want)
	if got := strings.Fields(strings.ReplaceAll(list, "- ", "")); !found || !ends || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestEncryptedDNS: dns.encrypted: Deny denies port 853 at the head of its own policy, and answers
// the names by which clients find encrypted resolvers.
func TestEncryptedDNS(t *testing.T) {
	const (
		deny   = "dns: {encrypted: Deny}"
		accept = `egress: [{action: Accept, matches: [{pattern: "**"}]}]`
	)
	for _, test := range []struct {
		what              string
		policies, cluster []string
		want              string // "none" is the default
	}{
		{"Accept", []string{`{egress: [{matches: [{pattern: "**"}]}]}`, "{dns: {encrypted: Accept}}"}, nil, "53 shop/p0, 443 shop/p0, 853 shop/p0, Resolve, Resolve"},
		{"out of the union", []string{`{egress: [{matches: [{pattern: "**"}]}]}`, "{" + deny + "}"}, nil, "53 shop/p0, 443 shop/p0, 853 not shop/p1, NXDomain encrypted, NoData encrypted"},
		{"an unknown word is Deny", []string{`{egress: [{matches: [{pattern: "**"}]}], dns: {encrypted: deny}}`}, nil, "53 shop/p0, 443 shop/p0, 853 not shop/p0, NXDomain encrypted, NoData encrypted"},
		{"Audit", []string{`{egress: [{matches: [{pattern: "**"}]}]}`, "{enforcement: Audit, " + deny + "}"}, nil, "53 shop/p0, 443 shop/p0, 853 shop/p0 would not shop/p1, Resolve, Resolve"},
		{"an Admin Accept", []string{"{" + deny + "}"}, []string{"{tier: Admin, " + accept + "}"}, "53 c0, 443 c0, 853 c0, Resolve, Resolve"},
		{"an Admin Accept in its own policy", nil, []string{"{tier: Admin, " + deny + ", " + accept + "}"}, "53 c0, 443 c0, 853 not c0, NXDomain encrypted, NoData encrypted"},
		{"an Admin Accept in an earlier policy", nil, []string{"{tier: Admin, " + accept + "}", "{tier: Admin, " + deny + "}"}, "53 c0, 443 c0, 853 c0, NXDomain encrypted, NoData encrypted"},
		{"an Admin Pass", []string{`{egress: [{matches: [{pattern: "**"}]}], ` + deny + "}"}, []string{"{tier: Admin, egress: [{action: Pass}]}"},
			"53 shop/p0, 443 shop/p0, 853 not shop/p0, NXDomain encrypted, NoData encrypted"},
		{"Admin before a policy that allows all", []string{`{egress: [{matches: [{pattern: "**"}]}]}`}, []string{"{tier: Admin, " + deny + "}"}, "53 shop/p0, 443 shop/p0, 853 not c0, NXDomain encrypted, NoData encrypted"},
		{"Baseline", nil, []string{"{tier: Baseline, " + deny + "}"}, "53 none, 443 none, 853 not c0, NXDomain encrypted, NoData encrypted"},
		{"Baseline behind a policy", []string{`{egress: [{matches: [{pattern: "**"}]}]}`}, []string{"{tier: Baseline, " + deny + "}"}, "53 shop/p0, 443 shop/p0, 853 shop/p0, Resolve, Resolve"},
		{"the names of a policy that refuses", []string{"{dns: {unmatched: Refuse, encrypted: Deny}}"}, nil, "53 not none, 443 not none, 853 not shop/p0, NXDomain encrypted, NoData encrypted"},
	} {
		s := New().Compile(limitsInput(t, test.policies, test.cluster))
		v := s.Views[0]
		matches := policy.Decide(v, policy.Query{Name: policytest.Name("dns.test")}).Matches
		said := func(port uint16, would bool) string {
			at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
			f := policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at, Would: would}
			f.Enter(matches...)
			allowed, by := policy.Evaluate(v, s, &f)
			f.Protocol = policy.UDP
			if other, otherBy := policy.Evaluate(v, s, &f); other != allowed || otherBy != by {
				t.Errorf("%s: port %d of UDP is not that of TCP", test.what, port)
			}
			text := map[bool]string{false: "not "}[allowed] + "none"
			if by != nil {
				text = strings.Replace(text, "none", by.Policy, 1)
			}
			return text
		}
		var words []string
		for _, port := range []uint16{53, 443, 853} {
			text := fmt.Sprint(port, " ", said(port, false))
			if would := said(port, true); port == 853 && would != said(port, false) {
				text += " would " + would
				if !v.WouldDeny() {
					t.Errorf("%s: the view does not know that it would deny", test.what)
				}
			}
			words = append(words, text)
		}
		for _, name := range []string{"use-application-dns.net", "_dns.resolver.arpa"} {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeSVCB} {
				d := policy.Decide(v, policy.Query{Name: policytest.Name(name), Type: qtype})
				text := strings.TrimSpace(d.Reply.String() + " " + d.Limit.String())
				if qtype == dns.TypeA {
					words = append(words, text)
				} else if text != words[len(words)-1] {
					t.Errorf("%s: %s is %s for SVCB", test.what, name, text)
				}
			}
		}
		diff.Equal(t, test.want, strings.Join(words, ", "), test.what)
	}
}
