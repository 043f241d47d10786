package nnp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// read reads the policy p of a spec in YAML.
func read(t *testing.T, spec string) *ordered.Policy {
	t.Helper()
	return Read(policytest.NodePolicy(t, "p", spec))
}

// tell returns the rules, each in one line.
func tell(p *ordered.Policy) (out []string) {
	for _, r := range p.Rules {
		text := fmt.Sprintf("%v %v %v %s", map[bool]string{true: "in", false: "out"}[r.Ingress], r.Traffic, r.Action, r.Ports)
		if r.Broken {
			text += " broken"
		}
		for _, m := range r.Matches {
			text += " " + m.Pattern.String()
		}
		out = append(out, strings.TrimSpace(text+" "+r.Peer.Key))
	}
	return out
}

func problems(p *ordered.Policy) (out []string) {
	for _, problem := range p.Problems {
		out = append(out, problem.Reason+" "+problem.Path+" "+problem.Message)
	}
	return out
}

func repeat(item string, n int) string { return strings.Join(slices.Repeat([]string{item}, n), ", ") }

// TestRead: a rule for each kind of its peers, those for egress first, with what the policy says as a whole.
func TestRead(t *testing.T) {
	p := read(t, `{nodeSelector: {matchLabels: {role: edge}}, priority: 1000, interfaces: [eth1, "eth*", eth1], enforcement: Audit, denied: Drop, dns: {denied: Refuse, unmatched: NXDomain, encrypted: Deny}, ttl: {reuseSeconds: 5},
		ingress: [{name: api, action: Accept, networks: [192.0.2.0/24], nodes: {}, pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {}}, ports: [{protocol: TCP, port: 6443}]}, {action: Deny}],
		egress: [{action: Accept, matches: [{pattern: "*.x.test"}], networks: ["2001:db8::/32"]}, {action: Deny, nodes: {matchLabels: {role: a}}}]}`)
	diff.Error(t, []string{
		"out Local Deny tcp/853,udp/853", "out Local Accept any *.x.test", "out Local Accept any 2001:db8::/32", "out Local Deny any nodes: role=a",
		"in Local Accept tcp/6443 nodes: *; ns team=a: *", "in Local Accept tcp/6443 192.0.2.0/24", "in Local Deny any",
	}, tell(p))
	if p.ID != "nodenetworkpolicy:p" || p.Object != "nodenetworkpolicy p" || p.Priority != 1000 || !p.Audit || p.Denied != policy.Drop || p.Unmatched != policy.NXDomain || p.Problems != nil ||
		p.Pods != nil || !p.Nodes.Matches(map[string]string{"role": "edge"}) || p.Nodes.Matches(nil) {
		t.Errorf("%+v", p)
	}
	for _, r := range p.Rules {
		if r.Tier != policy.Admin || r.Policy != p.ID || !r.Audit || r.Denied != policy.Drop || r.DNSDenied != policy.Refuse || r.TTL.Reuse.Seconds() != 5 || !slices.Equal(r.Interfaces, []string{"eth*", "eth1"}) {
			t.Errorf("%+v", r.Rule)
		}
	}
	if name, is := Name(p.ID); name != "p" || !is {
		t.Error(name, is)
	}
	if least := read(t, "{nodeSelector: {}, priority: 0}"); least.Traffic != policy.Local || least.Interfaces != nil || !least.Nodes.Matches(nil) || least.Problems != nil {
		t.Errorf("%+v", least)
	}
}

// TestTraffic: the traffic of each rule, and what a traffic has not.
func TestTraffic(t *testing.T) {
	const broken = "; until then the rule matches nothing"
	for spec, want := range map[string][]string{
		"traffic: Local, egress: [{action: Deny}], ingress: [{action: Accept}]":                           {"out Local Deny any", "in Local Accept any"},
		"traffic: Forwarded, egress: [{action: Deny, pods: {namespaceSelector: {}, podSelector: {}}}]":    {"out Forwarded Deny any *: *"},
		"traffic: BeforeNAT, ingress: [{action: Deny, nodes: {}}]":                                        {"in BeforeNAT Deny any nodes: *"},
		"traffic: Untracked, egress: [{action: Accept}], ingress: [{action: Deny, nodes: {}}]":            {"out Untracked Accept any", "in Untracked Deny any nodes: *"},
		"traffic: Forwarded, egress: [{action: Accept, matches: [{name: a.test}]}]":                       {"out Forwarded Accept  broken", "PartiallyInvalid spec.egress[0].matches names count with traffic: Local alone; write networks, or traffic: Local" + broken},
		"traffic: Untracked, ingress: [{action: Accept, pods: {namespaceSelector: {}, podSelector: {}}}]": {"in Untracked Accept  broken", "PartiallyInvalid spec.ingress[0].pods traffic: Untracked is not judged between the node and pods; write networks or nodes" + broken},
		"traffic: Forwarded, dns: {encrypted: Deny}":                                                      {"PartiallyInvalid spec.dns.encrypted it counts with traffic: Local alone, and has no effect here; write rules for port 853, or leave it out"},
	} {
		p := read(t, "{nodeSelector: {}, priority: 1, "+spec+"}")
		diff.Error(t, want, append(tell(p), problems(p)...), spec)
	}
}

// TestBroken: a rule with a part that cannot be read matches nothing as Accept, and denies everything else.
func TestBroken(t *testing.T) {
	for rule, want := range map[string]string{
		"{action: ACTION, networks: [192.0.2.0]}":                                                 `.networks[0] "192.0.2.0" is no network; write an address and its length`,
		"{action: ACTION, nodes: {matchExpressions: [{key: a, operator: in}]}}":                   `.nodes "in" is not a valid label selector operator`,
		"{action: ACTION, pods: {podSelector: {}}}":                                               ".pods.namespaceSelector the selector is missing; write one, or {} for all",
		"{action: ACTION, pods: {namespaceSelector: {}}}":                                         ".pods.podSelector the selector is missing; write one, or {} for all",
		"{action: ACTION, pods: {namespaceSelector: {}, podSelector: {matchLabels: {'a b': c}}}}": ".pods.podSelector key: Invalid value",
		"{action: ACTION, ports: [{port: 0}]}":                                                    ".ports[0].port 0 is no port",
		"{action: ACTION, ports: [" + repeat("{port: 1}", ordered.MaxPorts+1) + "]}":              ".ports 33 ports; write at most 32",
		"{action: ACTION, networks: [" + repeat("'::/0'", ordered.MaxNetworks+1) + "]}":           ".networks 65 networks; write at most 64",
	} {
		for action, rest := range map[string][2]string{
			"Accept": {"Accept  broken", "; until then the rule matches nothing"}, "Deny": {"Deny any broken", "; until then the rule denies every connection"},
			"Pass": {"Deny any broken", "; until then the rule denies every connection"},
		} {
			for direction, word := range map[string]string{"ingress": "in", "egress": "out"} {
				p := read(t, "{nodeSelector: {}, priority: 1, "+direction+": ["+strings.ReplaceAll(rule, "ACTION", action)+"]}")
				diff.Error(t, []string{word + " Local " + rest[0]}, tell(p), action, rule)
				if said := problems(p); !slices.ContainsFunc(said, func(s string) bool {
					return strings.HasPrefix(s, "PartiallyInvalid spec."+direction+"[0]"+want) && strings.HasSuffix(s, rest[1])
				}) {
					t.Errorf("%s %s: %q", action, rule, said)
				}
			}
		}
	}
	if p := read(t, "{nodeSelector: {}, priority: 1, ingress: ["+repeat("{action: Accept}", ordered.MaxRules+1)+"]}"); len(p.Rules) != ordered.MaxRules+1 || tell(p)[ordered.MaxRules] != "in Local Deny any broken" || len(p.Problems) != 1 {
		t.Errorf("%d rules, %q", len(p.Rules), problems(p))
	}
}

// TestInvalid: a policy whose nodes, place, traffic or interfaces cannot be read selects nothing, and says
// which rules that leaves open.
func TestInvalid(t *testing.T) {
	for spec, want := range map[string]string{
		"{priority: 1}": "spec.nodeSelector the selector is missing; write one, or {} for all",
		"{priority: 1, nodeSelector: {matchExpressions: [{key: a, operator: in}]}}": `spec.nodeSelector "in" is not a valid label selector operator`,
		"{nodeSelector: {}}":                                                                              "spec.priority the priority is missing; write 0 to 1000",
		"{nodeSelector: {}, priority: 1001}":                                                              "spec.priority 1001; write 0 to 1000",
		"{nodeSelector: {}, priority: 1, traffic: local}":                                                 `spec.traffic "local" is unknown; write Local, Forwarded, BeforeNAT or Untracked`,
		"{nodeSelector: {}, priority: 1, traffic: BeforeNAT, egress: [{action: Accept}]}":                 "spec.egress traffic: BeforeNAT is what arrives at the node; write ingress rules, or another traffic",
		"{nodeSelector: {}, priority: 1, interfaces: [ääääääää]}":                                         `spec.interfaces[0] "ääääääää"; write the name of an interface, at most 15 characters, or its beginning with one asterisk: eth0, eth*, *`,
		"{nodeSelector: {}, priority: 1, interfaces: [eth0, '*th0']}":                                     `spec.interfaces[1] "*th0"; write the name of an interface, at most 15 characters, or its beginning with one asterisk: eth0, eth*, *`,
		"{nodeSelector: {}, priority: 1, interfaces: [" + repeat("eth0", MaxInterfaces+1) + "]}":          "spec.interfaces 17 interfaces; write at most 16, or a beginning with an asterisk for several",
		"{nodeSelector: {}, priority: 1, interfaces: ['eth 0'], ingress: [{action: Deny}], egress: null}": `spec.interfaces[0] "eth 0"; write the name of an interface`,
	} {
		p := read(t, spec)
		got := problems(p)
		if len(got) != 1 || !strings.HasPrefix(got[0], "Invalid "+want) || !strings.Contains(got[0], "; the policy selects nothing until this is fixed") || p.Nodes != nil || p.Problems[0].Opens != strings.Contains(spec, "Deny") {
			t.Errorf("%s\n%q\nwant %q", spec, got, want)
		}
	}
	p := policytest.NodePolicy(t, "p", "{nodeSelector: {}, priority: 1, egress: [{action: Deny}]}")
	p.Spec.Unreadable = "unknown field"
	diff.Error(t, []string{"Invalid spec the policy cannot be read by this version: unknown field; the policy selects nothing until this is fixed, which leaves open what these rules close: spec.egress[0] (Deny)"}, problems(Read(p)))
	p.Spec.Unreadable, p.Spec.Egress[0].Unreadable = "", "unknown field"
	diff.Error(t, []string{"PartiallyInvalid spec.egress[0] unknown field; until then the rule denies every connection"}, problems(Read(p)))
}

// TestNotEnabled: where the agents enforce no policies for nodes, one is not accepted.
func TestNotEnabled(t *testing.T) {
	said := NotEnabled(policytest.NodePolicy(t, "p", "{nodeSelector: {}, priority: 1, egress: [{action: Deny}]}"))
	accepted, reason, message := policy.Acceptance(said)
	if accepted || reason != "NotEnabled" || !said[0].Opens || !strings.HasPrefix(message, "the agents do not enforce policies for nodes; install the chart with nodes.enabled=true, which leaves open") {
		t.Error(accepted, reason, message)
	}
}
