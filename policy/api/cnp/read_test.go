package cnp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// object returns an object of a manifest's spec.
func object(t testing.TB, spec string) *unstructured.Unstructured {
	var m map[string]any
	fatal.If(t, yaml.Unmarshal([]byte("metadata: {name: p}\nspec: "+spec), &m))
	return &unstructured.Unstructured{Object: m}
}

// ofRules reads a policy with some rules.
func ofRules(t testing.TB, rules string) *ordered.Policy {
	return Read(object(t, "{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: ["+rules+"]}"))
}

// shown is the rules of a policy as text.
func shown(p *ordered.Policy) (out []string) {
	kinds := map[policy.PeerKind]string{policy.PeerAnywhere: "anywhere", policy.PeerPods: "pods", policy.PeerNetworks: "networks", policy.PeerPorts: "named", policy.PeerNames: "names"}
	for _, r := range p.Rules {
		text := fmt.Sprintf("%v %v %s %s", r.Tier, r.Action, r.Ports, kinds[r.Peer.Kind])
		if r.Broken {
			text = fmt.Sprintf("%v %v broken", r.Tier, r.Action)
		}
		for _, m := range r.Matches {
			text += " " + m.Pattern.String()
		}
		out = append(out, strings.TrimSpace(text+" "+r.Peer.Key))
	}
	return out
}

func problems(p *ordered.Policy) (out []string) {
	for _, p := range p.Problems {
		out = append(out, strings.TrimPrefix(p.Reason+" "+p.Path+" "+p.Message, "PartiallyInvalid spec.egress[0]"))
	}
	return out
}

func TestRules(t *testing.T) {
	const (
		all   = "{namespaces: {matchLabels: {a: b}}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}, {nodes: {matchLabels: {role: x}}}"
		named = "{destinationNamedPort: http}, {destinationNamedPort: http}"
	)
	for _, c := range []struct {
		rules string
		want  []string
	}{
		{"{action: Accept, name: first, to: [" + all + "]}", []string{"Admin Accept any pods *: app=db; nodes: role=x; ns a=b: *"}},
		{"{action: Deny, to: [{networks: [10.0.0.0/9, 10.128.0.0/9, '2001:DB8::/32']}]}", []string{"Admin Deny any networks 10.0.0.0/8,2001:db8::/32"}},
		{
			"{action: Accept, to: [{networks: [192.0.2.0/24]}, {domainNames: ['*.Example.org', example.org.]}, {namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 443}}}, {udp: {destinationPort: {range: {start: 1, end: 9}}}}]}",
			[]string{"Admin Accept tcp/443,udp/1-9 names **.example.org example.org", "Admin Accept tcp/443,udp/1-9 pods *: *", "Admin Accept tcp/443,udp/1-9 networks 192.0.2.0/24"},
		},
		{
			"{action: Pass, to: [{namespaces: {}}], protocols: [" + named + ", {sctp: {destinationPort: {number: 7}}}]}, {action: Deny, to: [{namespaces: {}}], protocols: [" + named + "]}",
			[]string{"Admin Pass sctp/7 pods *: *", "Admin Pass any named http/tcp,http/udp,http/sctp of *: *", "Admin Deny any named http/tcp,http/udp,http/sctp of *: *"},
		},
	} {
		p := ofRules(t, c.rules)
		if diff := cmp.Diff(c.want, shown(p)); diff != "" || p.Problems != nil {
			t.Errorf("%s: %q\n%s", c.rules, problems(p), diff)
		}
	}
}

// TestBroken: a part that cannot be read leaves nothing of the rule.
func TestBroken(t *testing.T) {
	to := "{action: ACTION, to: [{namespaces: {}}], protocols: "
	for rule, want := range map[string][]string{
		"{action: ACTION, to: [{networks: [10.0.0.0/8]}, {serviceAccounts: {}}]}": {` unknown field "to[1].serviceAccounts"`},
		"{action: ACTION, to: [{Namespaces: {}}], priority: 7}":                   {` unknown field "priority"; unknown field "to[0].Namespaces"`},
		"{action: ACTION, to: [{namespaces: [a]}]}":                               {" json: cannot unmarshal array"},
		"{action: ACTION}": {".to 0 peers; write 1 to 25"},
		"{action: ACTION, to: [" + repeat("{namespaces: {}}", 26) + "]}":                    {".to 26 peers; write 1 to 25"},
		"{action: ACTION, to: [{}]}":                                                        {".to[0] write exactly one of namespaces, pods, nodes, networks and domainNames; a peer without any is one that the installed CRD does not know"},
		"{action: ACTION, to: [{namespaces: {}, networks: ['::/0']}]}":                      {".to[0] write exactly one of"},
		"{action: ACTION, to: [{networks: [10.0.0.1, '::ffff:1.2.3.0/120', 10.0.0.0/8]}]}":  {`.to[0].networks[0] "10.0.0.1" is no network; write an address and its length`, `.to[0].networks[1] "::ffff:1.2.3.0/120" is an IPv4 network written as IPv6; write the IPv4 network`},
		"{action: ACTION, to: [{networks: []}]}":                                            {".to[0].networks 0 networks; write 1 to 25"},
		"{action: ACTION, to: [{nodes: {matchExpressions: [{key: a, operator: Like}]}}]}":   {`.to[0].nodes "Like" is not a valid label selector operator`},
		"{action: ACTION, to: [{pods: {podSelector: {matchLabels: {'a b': c}}}}]}":          {".to[0] key: Invalid value"},
		"{action: ACTION, to: [{networks: [10.0.0.0/8]}, {pods: {namespaceSelector: {}}}]}": {".to[1].pods the podSelector is missing; write one, or {} for all"},
		to + "[]}":                             {".protocols 0 protocols; write 1 to 25, or leave protocols out for every port"},
		to + "[{}]}":                           {".protocols[0] write exactly one of tcp, udp, sctp and destinationNamedPort"},
		to + "[{tcp: {}}]}":                    {".protocols[0].tcp.destinationPort write exactly one of number and range"},
		to + "[{tcp: {destinationPort: {}}}]}": {".protocols[0].tcp.destinationPort write exactly one of number and range"},
		to + "[{tcp: {destinationPort: {number: 4}}, destinationNamedPort: x}]}": {".protocols[0] write exactly one of tcp"},
		to + "[{udp: {destinationPort: {range: {start: 5, end: 5}}}}]}":          {".protocols[0].udp.destinationPort.range start 5 is not below end 5; write number for one port"},
		to + "[{sctp: {destinationPort: {number: 70000}}}]}":                     {".protocols[0].sctp.destinationPort 70000 to 70000; write ports from 1 to 65535"},
		to + "[{tcp: {destinationPort: {number: 4294967739}}}]}":                 {" json: cannot unmarshal number 4294967739", ".protocols[0].tcp.destinationPort write"},
		to + "[{destinationNamedPort: 'no such'}]}":                              {`.protocols[0].destinationNamedPort "no such" is no name of a port; write the name of a container port`},
		"{action: ACTION, to: [{nodes: {}}], protocols: [{destinationNamedPort: http}]}": {
			".protocols[0].destinationNamedPort nodes, networks and domainNames have no ports with names; write the number, or a rule for namespaces and pods alone",
		},
	} {
		for action, effect := range map[string][2]string{
			"Accept": {"Admin Accept broken", "matches nothing"}, "Deny": {"Admin Deny broken", "denies every connection"}, "Pass": {"Admin Pass broken", "denies every connection"},
		} {
			p := ofRules(t, strings.ReplaceAll(rule, "ACTION", action))
			said := problems(p)
			if got := shown(p); !slices.Equal(got, []string{effect[0]}) || len(said) != len(want) {
				t.Errorf("%s %s: %q %q", action, rule, got, said)
				continue
			}
			for i := range want {
				if !strings.HasPrefix(said[i], want[i]) || !strings.HasSuffix(said[i], "; until then the rule "+effect[1]) {
					t.Errorf("%s %s: %q, want %q", action, rule, said[i], want[i])
				}
			}
		}
	}
}

// TestNetworkBits: a network with bits beyond its length, which earlier CRDs let in, keeps its meaning.
func TestNetworkBits(t *testing.T) {
	for _, action := range []string{"Accept", "Deny", "Pass"} {
		p := ofRules(t, "{action: "+action+", to: [{networks: [192.0.2.0/24, 10.1.2.3/9, '2001:db8::1/32']}]}")
		diff.Error(t, []string{"Admin " + action + " any networks 10.0.0.0/9,192.0.2.0/24,2001:db8::/32"}, shown(p))
		diff.Error(t, []string{
			`.to[0].networks[1] "10.1.2.3/9" has bits beyond its length, which the CRD refuses since v0.2.1; write 10.0.0.0/9, as which it counts`,
			`.to[0].networks[2] "2001:db8::1/32" has bits beyond its length, which the CRD refuses since v0.2.1; write 2001:db8::/32, as which it counts`,
		}, problems(p))
	}
}

func repeat(s string, n int) string { return strings.Repeat(s+", ", n-1) + s }

// TestDomainNames: names are supported with Accept alone.
func TestDomainNames(t *testing.T) {
	for name, want := range map[string]string{
		"a*.org": `"a*.org" has a wildcard`, "*": `"*" has a wildcard`, "**.a.org": `"**.a.org" has a wildcard`, "*.*.org": `"*.*.org" has a wildcard`,
		"": "nothing is written", "*.": "nothing is written", "*..": "nothing is written", "a..org": `"a..org" has an empty label`, "https://a.org": `"https://a.org" holds ":"`,
	} {
		p := ofRules(t, fmt.Sprintf("{action: Accept, to: [{domainNames: [b.org, %q]}]}", name))
		if said := problems(p); !slices.Equal(shown(p), []string{"Admin Accept broken"}) || len(said) != 1 || !strings.HasPrefix(said[0], ".to[0].domainNames[1] "+want) {
			t.Errorf("%q: %q %q", name, shown(p), said)
		}
	}
	for _, action := range []string{"Deny", "Pass"} {
		p := ofRules(t, "{action: "+action+", to: [{domainNames: [b.org]}]}")
		if said := problems(p); !slices.Equal(shown(p), []string{"Admin " + action + " broken"}) || len(said) != 1 ||
			said[0] != ".to[0].domainNames domainNames works with Accept alone; write networks, or a ClusterFQDNNetworkPolicy; until then the rule denies every connection" {
			t.Errorf("%q %q", shown(p), said)
		}
	}
	p := ofRules(t, "{action: Accept, to: [{domainNames: [b.org]}], protocols: [{destinationNamedPort: http}]}")
	if said := problems(p); !slices.Equal(shown(p), []string{"Admin Accept broken"}) || len(said) != 1 || !strings.HasPrefix(said[0], ".protocols[0].destinationNamedPort nodes, networks and domainNames have no ports with names") {
		t.Errorf("%q %q", shown(p), said)
	}
}

// TestUnknownAction: an action of a later version denies.
func TestUnknownAction(t *testing.T) {
	p := ofRules(t, "{action: Log, to: [{networks: [10.0.0.0/8]}]}, 7")
	if said := problems(p); !slices.Equal(shown(p), []string{"Admin Deny broken", "Admin Deny broken"}) || len(said) != 3 ||
		said[0] != `.action "Log" is unknown; write Accept, Deny or Pass; until then the rule denies every connection` {
		t.Errorf("%q %q", shown(p), said)
	}
}

// TestInvalid: a policy whose place or subject cannot be read selects nothing.
func TestInvalid(t *testing.T) {
	for spec, want := range map[string]string{
		"{priority: 1, subject: {namespaces: {}}}":                                           `spec.tier "" is no tier; write Admin or Baseline`,
		"{tier: Admin, subject: {namespaces: {}}}":                                           "spec.priority <nil> is no priority; write 0 to 1000",
		"{tier: Admin, priority: 1001, subject: {namespaces: {}}}":                           "spec.priority 1001 is no priority; write 0 to 1000",
		"{tier: Admin, priority: x, subject: {namespaces: {}}}":                              "spec.priority x is no priority; write 0 to 1000",
		"{tier: Admin, priority: 1}":                                                         "spec.subject write exactly one of namespaces and pods; namespaces: {} selects every pod",
		"{tier: Admin, priority: 1, subject: {namespaces: {}, pods: {podSelector: {}}}}":     "spec.subject write exactly one of namespaces and pods; namespaces: {} selects every pod",
		"{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}}}}":               "spec.subject.pods the podSelector is missing; write one, or {} for all",
		"{tier: Admin, priority: 1, subject: {namespaces: {}, nodes: {}}}":                   `spec.subject unknown field "nodes"`,
		"{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {'a b': c}}}}":       "spec.subject key: Invalid value",
		"{tier: Baseline, priority: 1, subject: {namespaces: {}}, egress: {action: Accept}}": "spec.egress it is no list of rules; the policy selects nothing until this is fixed, which leaves open what these rules close: spec.egress (Deny)",
	} {
		p := Read(object(t, spec))
		if said := problems(p); len(said) != 1 || !strings.HasPrefix(said[0], "Invalid "+want) || !strings.Contains(said[0], "; the policy selects nothing until this is fixed") || p.Selects(nil, nil) {
			t.Errorf("%s: %q", spec, said)
		}
	}
}

// TestPolicy reads the parts that are no rule.
func TestPolicy(t *testing.T) {
	p := Read(object(t, `{tier: Baseline, priority: 1000, log: all, ingress: [{action: Deny, from: [{namespaces: {}}]}],
		subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}, egress: [{name: first, action: Accept, to: [{domainNames: [a.org]}]}]}`))
	if p.ID != "clusternetworkpolicy:p" || p.Tier != policy.Baseline || p.Priority != 1000 || len(p.Problems) != 1 {
		t.Errorf("%+v", p)
	}
	want := policy.Problem{Object: "clusternetworkpolicy p", Reason: policy.ReasonPartiallyInvalid, Path: "spec.log",
		Message: "the field is unknown and has no effect; remove it, or install a version of Namegate that knows it"}
	diff.Error(t, []policy.Problem{want}, p.Problems)
	if r := p.Rules[0]; r.Name != "first" || r.Priority != 1000 || !r.Standard || r.Denied != policy.Drop || r.Audit {
		t.Errorf("%+v", r.Rule)
	}
	if m := p.Rules[0].Matches[0]; m.By() != "clusternetworkpolicy:p a.org" || m.Path != "spec.egress[0].to[0].domainNames[0]" || m.Rule != p.Rules[0].Rule || m.TTL.Grace != policy.DefaultGrace || m.TTL.Reuse != policy.DefaultReuse {
		t.Errorf("%+v", m)
	}
	for _, c := range []struct {
		space, app string
		want       bool
	}{{"a", "web", true}, {"a", "db", false}, {"b", "web", false}} {
		diff.Equal(t, c.want, p.Selects(map[string]string{"team": c.space}, map[string]string{"app": c.app}), c)
	}
}

// TestIngress: rules for ingress follow those for egress, and named ports are the subject's.
func TestIngress(t *testing.T) {
	const named = "{destinationNamedPort: http}, {tcp: {destinationPort: {number: 80}}}"
	p := Read(object(t, `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [
		{name: a, action: Accept, from: [{namespaces: {matchLabels: {a: b}}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}], protocols: [`+named+`]},
		{action: Pass, from: [{namespaces: {}}], protocols: [{destinationNamedPort: http}]}], egress: [{action: Deny, to: [{namespaces: {}}], protocols: [`+named+`]}]}`))
	var got []string
	for _, r := range p.Rules {
		got = append(got, fmt.Sprint(r.Ingress, " ", r.Path, " ", r.Name, " ", r.Action, " ", r.Peer.Kind, " ", r.Peer.Key, " ", r.Ports, " ", r.PortNames, " ", r.Denied, " ", r.Spec != nil))
	}
	http := "[{http tcp 0} {http udp 0} {http sctp 0}]"
	diff.Error(t, []string{
		"false spec.egress[0]  Deny 1 *: * tcp/80 [] Drop true",
		"false spec.egress[0]  Deny 3 http/tcp,http/udp,http/sctp of *: * any [] Drop true",
		"true spec.ingress[0] a Accept 1 *: app=db; ns a=b: * tcp/80 " + http + " Drop true",
		"true spec.ingress[1]  Pass 1 *: *  " + http + " Drop true",
	}, got)
	diff.Equal(t, 0, len(p.Problems), "problems")
}

// TestBrokenIngress: as for egress, and the peers are two kinds.
func TestBrokenIngress(t *testing.T) {
	for rule, want := range map[string]string{
		"{action: Deny, from: [{networks: [10.0.0.0/8]}]}":        `spec.ingress[0] unknown field "from[0].networks"; until then the rule denies every connection`,
		"{action: Pass, from: [{nodes: {}}]}":                     `spec.ingress[0] unknown field "from[0].nodes"; until then the rule denies every connection`,
		"{action: Accept, to: [{namespaces: {}}]}":                `spec.ingress[0] unknown field "to"; until then the rule matches nothing`,
		"{action: Accept}":                                        "spec.ingress[0].from 0 peers; write 1 to 25; until then the rule matches nothing",
		"{action: Accept, from: [{}]}":                            "spec.ingress[0].from[0] write exactly one of namespaces and pods; a peer without any is one that the installed CRD does not know; until then the rule matches nothing",
		"{action: Deny, from: [{pods: {namespaceSelector: {}}}]}": "spec.ingress[0].from[0].pods the podSelector is missing; write one, or {} for all; until then the rule denies every connection",
		"{action: Deny, from: [{namespaces: {}}], protocols: []}": "spec.ingress[0].protocols 0 protocols; write 1 to 25, or leave protocols out for every port; until then the rule denies every connection",
		"7": "spec.ingress[0].action \"\" is unknown; write Accept, Deny or Pass; until then the rule denies every connection",
		repeat("{action: Accept, from: [{namespaces: {}}]}", 26): "spec.ingress 26 rules; write at most 25 and put the rest into another policy; until then the rule denies every connection",
	} {
		p := Read(object(t, "{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: ["+rule+"]}"))
		last := p.Rules[len(p.Rules)-1]
		if !last.Broken || !last.Ingress || len(last.PortNames) > 0 || p.Pods == nil || len(p.Problems) == 0 {
			t.Errorf("%s: %+v %v", rule, last.Rule, p.Problems)
			continue
		}
		if got := p.Problems[0].Path + " " + p.Problems[0].Message; got != want {
			t.Errorf("%s:\n%s, want\n%s", rule, got, want)
		}
	}
	if p := Read(object(t, "{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: {}}")); p.Pods != nil || len(p.Problems) != 1 || p.Problems[0].Path != "spec.ingress" {
		t.Errorf("%+v", p)
	}
}

// TestBounds: rules beyond the bound deny what those before leave, and problems are few.
func TestBounds(t *testing.T) {
	p := ofRules(t, repeat("{action: Accept, to: [{networks: ["+repeat("x", 9)+"]}]}", MaxRules+1))
	got := shown(p)
	if len(got) != MaxRules+1 || got[MaxRules] != "Admin Deny broken" || len(p.Problems) != policy.MaxProblems+1 {
		t.Errorf("%d rules, %d problems", len(got), len(p.Problems))
	}
}

func TestSame(t *testing.T) {
	a, b := object(t, "{priority: 1}"), object(t, "{priority: 1}")
	b.SetResourceVersion("7")
	if !Same(a, a) || !Same(a, b) || Same(a, object(t, "{priority: 2}")) {
		t.Error("other specs are the same")
	}
}

// TestAsServed: another kind is asked for once, this one in both versions where the first is missing.
func TestAsServed(t *testing.T) {
	missing, busy := apierrors.NewNotFound(schema.GroupResource{}, ""), errors.New("busy")
	other := Resource()
	other.Resource = "networkpolicies"
	for _, c := range []struct {
		of      schema.GroupVersionResource
		answers []error
		asked   []string
	}{
		{Resource(), []error{nil}, []string{"v1beta1"}},
		{Resource(), []error{busy}, []string{"v1beta1"}},
		{Resource(), []error{missing, nil}, []string{"v1beta1", "v1alpha2"}},
		{Resource(), []error{missing, busy}, []string{"v1beta1", "v1alpha2"}},
		{Resource(), []error{missing, missing}, []string{"v1beta1", "v1alpha2"}},
		{other, []error{missing}, []string{"v1beta1"}},
	} {
		var asked []string
		_, err := AsServed(c.of, func(of schema.GroupVersionResource) (string, error) {
			asked = append(asked, of.Version)
			of.Version = c.of.Version
			diff.Equal(t, c.of, of, "resource")
			return "", c.answers[len(asked)-1]
		})
		if want := c.answers[len(c.answers)-1]; !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", c, err, want)
		}
		diff.Error(t, c.asked, asked)
	}
}

func TestPeersOf(t *testing.T) {
	for spec, want := range map[string][2]bool{
		"{}":            {},
		"{egress: x}":   {},
		"{egress: [x]}": {},
		"{egress: [{to: [{networks: [0.0.0.0/0]}, {domainNames: [a.org]}]}]}": {},
		"{egress: [{to: [{networks: []}]}, {to: [{nodes: {}}]}]}":             {false, true},
		"{egress: [{to: [{namespaces: {}}]}]}":                                {true, false},
		"{egress: [{to: [{pods: {}}, {nodes: {}}]}]}":                         {true, true},
		"{ingress: [{from: [{pods: {}}]}], egress: [{to: [{nodes: {}}]}]}":    {true, true},
		"{ingress: [7]}": {true, false},
		"{ingress: []}":  {},
	} {
		if pods, nodes := PeersOf(object(t, spec)); [2]bool{pods, nodes} != want {
			t.Errorf("%s: pods %v, nodes %v", spec, pods, nodes)
		}
	}
}
