package cfqdnnp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// read reads the policy p of a spec in YAML.
func read(t *testing.T, spec string) *Policy {
	t.Helper()
	return Read(policytest.ClusterPolicy(t, "p", spec))
}

// ofRule reads a policy with one rule.
func ofRule(t *testing.T, rule string) *Policy {
	t.Helper()
	return read(t, "{tier: Admin, priority: 7, subject: {namespaces: {}}, egress: ["+rule+"]}")
}

// tell returns a rule in one line.
func tell(r ordered.Rule) string {
	text := fmt.Sprintf("%v %v %s", r.Tier, r.Action, r.Ports)
	if r.Broken {
		text += " broken"
	}
	if r.Audit {
		text += " audit"
	}
	switch r.Peer.Kind {
	case policy.PeerNames:
		for _, m := range r.Matches {
			text += " " + m.Pattern.String()
		}
	case policy.PeerNetworks:
		text += " " + r.Peer.Key
	case policy.PeerAnywhere:
		text += " anywhere"
	}
	return text
}

func tellAll(p *Policy) (out []string) {
	for _, r := range p.Rules {
		out = append(out, tell(r))
	}
	return out
}

func problems(p *Policy) (out []string) {
	for _, problem := range p.Problems {
		out = append(out, problem.Reason+" "+problem.Path+" "+problem.Message)
	}
	return out
}

func TestRules(t *testing.T) {
	for rule, want := range map[string][]string{
		"{action: Deny}": {"Admin Deny any anywhere"},
		"{action: Pass, ports: [{protocol: TCP, port: 443}, {port: 53}, {protocol: UDP, port: 1, endPort: 2}]}": {"Admin Pass tcp/53,tcp/443,udp/1-2,udp/53,sctp/53 anywhere"},
		`{action: Accept, matches: [{pattern: "**.x.test"}, {pattern: "*.x.test"}, {name: X.test.}]}`:           {"Admin Accept any **.x.test *.x.test x.test"},
		"{action: Deny, networks: [192.0.2.7/24, 192.0.3.0/24, \"2001:db8::/32\"]}":                             {"Admin Deny any 192.0.2.0/23,2001:db8::/32"},
		"{action: Deny, networks: [192.0.2.0/25, 192.0.2.128/25], matches: [{name: a.test}], ports: [{protocol: SCTP}]}": {
			"Admin Deny sctp a.test", "Admin Deny sctp 192.0.2.0/24",
		},
	} {
		p := ofRule(t, rule)
		if d := cmp.Diff(want, tellAll(p)); d != "" || len(p.Problems) > 0 {
			t.Errorf("%s: %v (-want +got)\n%s", rule, problems(p), d)
		}
	}
}

// TestSettings: what the policy says as a whole is in each of its rules.
func TestSettings(t *testing.T) {
	p := read(t, `{tier: Baseline, priority: 1000, subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}},
		egress: [{name: pastes, action: Deny, matches: [{name: a.test}, {name: b.test}]}, {action: Pass, networks: [192.0.2.0/24]}],
		dns: {denied: Refuse, unmatched: NXDomain}, enforcement: Audit, denied: Drop, ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 3, reuseSeconds: 5}}`)
	if p.ID != "p" || p.Tier != policy.Baseline || p.Priority != 1000 || !p.Audit || p.Unmatched != policy.NXDomain || p.Problems != nil {
		t.Errorf("%+v", p)
	}
	names := []string{"pastes", ""}
	for i, r := range p.Rules {
		if r.Policy != "p" || r.Path != fmt.Sprintf("spec.egress[%d]", i) || r.Name != names[i] || !r.Audit || r.Denied != policy.Drop ||
			r.DNSDenied != policy.Refuse || r.TTL.Lifetime(0).Seconds() != 4 || r.TTL.Reuse.Seconds() != 5 {
			t.Errorf("%+v", r.Rule)
		}
	}
	if m := p.Rules[0].Matches[1]; m.By() != "p b.test" || m.Path != "spec.egress[0].matches[1]" || m.Rule != p.Rules[0].Rule || p.Rules[0].Matches[0].Compare(m) >= 0 {
		t.Errorf("%+v", m)
	}
	for _, c := range []struct {
		space, app string
		want       bool
	}{{"a", "web", true}, {"a", "db", false}, {"b", "web", false}} {
		diff.Equal(t, c.want, p.Selects(map[string]string{"team": c.space}, map[string]string{"app": c.app}), c)
	}
	least := read(t, "{tier: Admin, priority: 0, subject: {namespaces: {}}}")
	if least.DNSDenied != policy.NXDomain || least.Unmatched != policy.Resolve || least.Denied != policy.Reject || least.Audit || !least.Selects(nil, nil) {
		t.Errorf("%+v", least)
	}
}

// TestBroken: a rule with a part that cannot be read matches nothing as Accept, and denies
// everything else, and its problem says that and what to write.
func TestBroken(t *testing.T) {
	for rule, want := range map[string]string{
		"{action: ACTION, matches: [{name: a.test}, {name: '*.b.test'}]}":                                                      `.matches[1].name `,
		"{action: ACTION, matches: [{name: a.test}, {}]}":                                                                      ".matches[1] write exactly one of name and pattern",
		"{action: ACTION, matches: [{pattern: a.**.test}]}":                                                                    ".matches[0].pattern ",
		"{action: ACTION, networks: [192.0.2.0/24, 192.0.2.0]}":                                                                `.networks[1] "192.0.2.0" is no network; write an address and its length: 192.0.2.0/24, 2001:db8::/32`,
		"{action: ACTION, networks: [192.0.2.0/33]}":                                                                           `.networks[0] "192.0.2.0/33" is no network`,
		"{action: ACTION, networks: ['::ffff:192.0.2.0/120']}":                                                                 `.networks[0] "::ffff:192.0.2.0/120" is an IPv4 network written as IPv6; write the IPv4 network`,
		"{action: ACTION, networks: [" + repeat("192.0.2.0/24", MaxNetworks+1) + "]}":                                          ".networks 65 networks; write at most 64",
		"{action: ACTION, matches: [" + repeat("{name: a.test}", MaxMatches+1) + "]}":                                          ".matches 65 matches; write at most 64",
		"{action: ACTION, ports: [" + repeat("{port: 1}", MaxPorts+1) + "]}":                                                   ".ports 33 ports; write at most 32",
		"{action: ACTION, ports: [{port: 1}, {protocol: tcp}]}":                                                                `.ports[1].protocol "tcp" is unknown; write TCP, UDP, SCTP or ALL`,
		"{action: ACTION, matches: [{name: a.test}], ports: [{port: 2, endPort: 1}]}":                                          ".ports[0].endPort endPort 1 is below port 2",
		"{action: ACTION, matches: [{name: a.test}], serverName: Require}":                                                     ".serverName server names are of TLS over TCP; with Require, write ports, each with protocol: TCP",
		"{action: ACTION, matches: [{name: a.test}], ports: [{port: 443}], serverName: Require}":                               ".serverName server names are of TLS over TCP",
		"{action: ACTION, ports: [{protocol: TCP}], serverName: Require}":                                                      ".serverName Require is for rules with ",
		"{action: ACTION, networks: [192.0.2.0/24], matches: [{name: a.test}], ports: [{protocol: TCP}], serverName: Require}": ".serverName Require is for rules with ",
		"{action: ACTION, matches: [{name: a.test}], ports: [{protocol: TCP}], serverName: require}":                           `.serverName "require" is unknown; write Ignore or Require`,
		"{action: ACTION, ports: [{endPort: 1}]}":                                                                              ".ports[0].endPort endPort 1 stands alone",
		"{action: ACTION, matches: [{name: a.test}], networks: [x], ports: [{port: 0}]}":                                       ".ports[0].port 0 is no port",
	} {
		for action, rest := range map[string][2]string{
			"Accept": {"Admin Accept  broken", "; until then the rule matches nothing"},
			"Deny":   {"Admin Deny any broken anywhere", "; until then the rule denies every connection"},
			"Pass":   {"Admin Pass any broken anywhere", "; until then the rule denies every connection"},
			"Reject": {"Admin Deny any broken anywhere", "; until then the rule denies every connection"},
		} {
			p := ofRule(t, strings.ReplaceAll(rule, "ACTION", action))
			diff.Error(t, []string{rest[0]}, tellAll(p), action, rule)
			said := problems(p)
			if !slices.ContainsFunc(said, func(s string) bool {
				return strings.HasPrefix(s, "PartiallyInvalid spec.egress[0]"+want) && strings.HasSuffix(s, rest[1])
			}) {
				t.Errorf("%s %s: %q", action, rule, said)
			}
		}
	}
}

// TestServerName: rules with action Accept and names alone may require it.
func TestServerName(t *testing.T) {
	for rule, want := range map[string]string{
		"{action: Accept, matches: [{name: a.test}], ports: [{protocol: TCP, port: 443}], serverName: Require}": "",
		"{action: Deny, networks: [192.0.2.0/24], serverName: Ignore}":                                          "",
		"{action: Deny, matches: [{name: a.test}], ports: [{protocol: TCP}], serverName: Require}":              "Require is for rules with action Accept; leave it out of other rules; until then the rule denies every connection",
		"{action: Accept, matches: [{name: a.test}], networks: [192.0.2.0/24], ports: [{protocol: TCP}], serverName: Require}": "Require is for rules with matches alone; " +
			"for networks, write two rules: one with matches and serverName: Require, one with networks; until then the rule matches nothing",
	} {
		p := ofRule(t, rule)
		if want != "" {
			diff.Error(t, []string{"PartiallyInvalid spec.egress[0].serverName " + want}, problems(p), rule)
		} else if diff.Empty(t, problems(p), rule); p.Rules[0].ServerName != (p.Rules[0].Action == policy.Accept) {
			t.Errorf("%s: %+v", rule, p.Rules[0].Rule)
		}
	}
}

func repeat(item string, n int) string { return strings.Join(slices.Repeat([]string{item}, n), ", ") }

// TestUnreadable: what the source could not read breaks its rule, and no other.
func TestUnreadable(t *testing.T) {
	p := policytest.ClusterPolicy(t, "p", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept}, {action: Deny, matches: [{name: a.test}]}]}")
	p.Spec.Egress[0].Unreadable = "unknown field"
	got := Read(p)
	diff.Error(t, []string{"Admin Accept  broken", "Admin Deny any a.test"}, tellAll(got))
	diff.Error(t, []string{"PartiallyInvalid spec.egress[0] unknown field; until then the rule matches nothing"}, problems(got))
}

// TestInvalid: a policy whose place or subject cannot be read selects nothing.
func TestInvalid(t *testing.T) {
	for spec, want := range map[string]string{
		"{tier: admin, priority: 1, subject: {namespaces: {}}}":                                           `spec.tier "admin" is no tier; write Admin or Baseline`,
		"{priority: 1, subject: {namespaces: {}}}":                                                        `spec.tier "" is no tier; write Admin or Baseline`,
		"{tier: Admin, subject: {namespaces: {}}}":                                                        "spec.priority the priority is missing; write 0 to 1000",
		"{tier: Admin, priority: 1001, subject: {namespaces: {}}}":                                        "spec.priority 1001; write 0 to 1000",
		"{tier: Admin, priority: -1, subject: {namespaces: {}}}":                                          "spec.priority -1; write 0 to 1000",
		"{tier: Admin, priority: 1}":                                                                      "spec.subject write exactly one of pods and namespaces; namespaces: {} selects every pod",
		"{tier: Admin, priority: 1, subject: {pods: {podSelector: {}}}}":                                  "spec.subject.pods.namespaceSelector the selector is missing; write one, or {} for all",
		"{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}}}}":                            "spec.subject.pods.podSelector the selector is missing; write one, or {} for all",
		"{tier: Admin, priority: 1, subject: {namespaces: {matchExpressions: [{key: a, operator: in}]}}}": `spec.subject.namespaces "in" is not a valid label selector operator`,
	} {
		p := read(t, spec)
		want = "Invalid " + want + "; the policy selects nothing until this is fixed"
		if got := problems(p); len(got) != 1 || got[0] != want || p.Selects(nil, nil) {
			t.Errorf("%s\n%q\nwant %q", spec, got, want)
		}
	}
}

// TestStrictest: a setting that does not exist counts as the strictest one, and breaks no rule.
func TestStrictest(t *testing.T) {
	p := read(t, "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, matches: [{name: a.test}]}], "+
		"enforcement: audit, denied: reject, dns: {denied: nxdomain, unmatched: resolve}, ttl: {minSeconds: 0, reuseSeconds: 604801}}")
	if p.Audit || p.Denied != policy.Drop || p.DNSDenied != policy.Refuse || p.Unmatched != policy.Refuse || p.Rules[0].TTL.Min != policy.DefaultMinTTL || p.Rules[0].TTL.Reuse != policy.DefaultReuse || p.Rules[0].Broken {
		t.Errorf("%+v", p)
	}
	if got := problems(p); len(got) != 6 || !strings.Contains(got[5], "spec.ttl.reuseSeconds 604801 seconds; write 1 to 604800 (the default 86400 counts)") || !strings.Contains(got[2], `spec.dns.denied "nxdomain" is unknown; write Resolve, NXDomain or Refuse (it counts as Refuse)`) {
		t.Errorf("%q", got)
	}
}

// TestRuleName: a name that cannot be breaks nothing.
func TestRuleName(t *testing.T) {
	for name, problem := range map[string]bool{
		strings.Repeat("ü", ordered.MaxRuleName): false, strings.Repeat("n", ordered.MaxRuleName+1): true, `a\nb`: true, `a\u007fb`: true,
	} {
		p := ofRule(t, `{action: Pass, name: "`+name+`"}`)
		if p.Rules[0].Broken || (p.Rules[0].Name == "") != problem || (len(p.Problems) > 0) != problem {
			t.Errorf("%q: %+v %q", name, p.Rules[0].Rule, problems(p))
		}
	}
}

// TestTooManyRules: the rules beyond the bound deny what those before leave.
func TestTooManyRules(t *testing.T) {
	p := ofRule(t, repeat("{action: Accept, matches: [{name: a.test}]}", MaxRules+1))
	if got := tellAll(p); len(got) != MaxRules+1 || got[MaxRules] != "Admin Deny any broken anywhere" || got[MaxRules-1] != "Admin Accept any a.test" || len(p.Problems) != 1 {
		t.Errorf("%d rules, the last %s, %q", len(got), got[len(got)-1], problems(p))
	}
}

// TestManyProblems: the problems are bounded.
func TestManyProblems(t *testing.T) {
	p := ofRule(t, repeat("{action: Deny, ports: ["+repeat("{port: 0}", MaxPorts)+"]}", 10))
	if len(p.Problems) != policy.MaxProblems+1 || len(p.Rules) != 10 {
		t.Errorf("%d problems, %d rules", len(p.Problems), len(p.Rules))
	}
	if accepted, reason, _ := policy.Acceptance(p.Problems); !accepted || reason != policy.ReasonPartiallyInvalid {
		t.Error(reason)
	}
}
