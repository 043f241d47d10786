package compile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

func times[T any](n int, v T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// slip changes one thing of a good policy.
type slip struct {
	change   func(*spec)
	problems []string // "path: part of the message"
	works    []string // names that still match, by default good.test
}

type spec = v1alpha1.FQDNNetworkPolicySpec

func slips() map[string]slip {
	good := aRule("good.test")
	return map[string]slip{
		"nothing": {change: func(*spec) {}},
		"a bad match": {
			change:   func(s *spec) { s.Egress = []v1alpha1.EgressRule{aRule("good.test", "a..b", "x**.test", "other.test")} },
			problems: []string{"spec.egress[0].matches[1].name: an empty label", "spec.egress[0].matches[2].pattern: ** elsewhere"},
			works:    []string{"good.test", "other.test"},
		},
		"neither name nor pattern": {
			change:   func(s *spec) { s.Egress[0].Matches = append(s.Egress[0].Matches, v1alpha1.Match{}) },
			problems: []string{"spec.egress[0].matches[1]: write exactly one of name and pattern"},
		},
		"both": {
			change: func(s *spec) {
				s.Egress[0].Matches = append(s.Egress[0].Matches, v1alpha1.Match{Name: ptr("a.test"), Pattern: ptr("*.test")})
			},
			problems: []string{"spec.egress[0].matches[1]: write exactly one"},
		},
		"no matches": {
			change:   func(s *spec) { s.Egress = append(s.Egress, v1alpha1.EgressRule{}) },
			problems: []string{"spec.egress[1].matches: a rule without matches opens nothing"},
		},
		"too many matches": {
			change: func(s *spec) {
				s.Egress = []v1alpha1.EgressRule{aRule(append(times(fqdnnp.MaxMatches, "good.test"), "late.test")...)}
			},
			problems: []string{"spec.egress[0].matches: 257 matches; write at most 256"},
		},
		"too many rules": {
			change:   func(s *spec) { s.Egress = append(times(fqdnnp.MaxRules, good), aRule("late.test")) },
			problems: []string{"spec.egress: 65 rules; write at most 64"},
		},
		"too many ports": {
			change:   func(s *spec) { s.Egress[0].Ports = times(fqdnnp.MaxPorts+1, tcp(1)) },
			problems: []string{"spec.egress[0].ports: 65 ports; write at most 64"},
		},
		"one bad port": {
			change:   func(s *spec) { s.Egress[0].Ports = []v1alpha1.Port{tcp(0), tcp(1)} },
			problems: []string{"spec.egress[0].ports[0].port: 0 is no port"},
		},
		"a server name on all ports": {
			change:   func(s *spec) { s.Egress = append(s.Egress, checked(aRule("closed.test"))) },
			problems: []string{"spec.egress[1].serverName: server names are of TLS over TCP; with Require, write ports, each with protocol: TCP"},
		},
		"a server name on ports of all protocols": {
			change: func(s *spec) {
				s.Egress = append(s.Egress, checked(on(aRule("closed.test"), tcp(443), v1alpha1.Port{Port: ptr(int32(80))})))
			},
			problems: []string{"spec.egress[1].serverName: server names are of TLS over TCP"},
		},
		"an unknown word for the server name": {
			change: func(s *spec) {
				s.Egress[0].Ports, s.Egress[0].ServerName = []v1alpha1.Port{tcp(443)}, "require"
			},
			problems: []string{`spec.egress[0].serverName: "require" is unknown; write Ignore or Require (it counts as Require)`},
		},
		"only bad ports": {
			change:   func(s *spec) { s.Egress = append(s.Egress, on(aRule("closed.test"), tcp(70000))) },
			problems: []string{"spec.egress[1].ports[0].port: 70000 is no port"},
		},
		"the words": {
			change: func(s *spec) { s.Enforcement, s.Denied, s.DNS.Unmatched = "audit", "no", "NXDOMAIN" },
			problems: []string{`spec.enforcement: "audit" is unknown; write Enforce or Audit`,
				`spec.denied: "no" is unknown; write Reject or Drop`, `spec.dns.unmatched: "NXDOMAIN" is unknown; write Resolve, NXDomain or Refuse`},
		},
		"zero seconds": {
			change: func(s *spec) { s.TTL = v1alpha1.TTL{MinSeconds: ptr(int64(0)), GraceSeconds: ptr(int64(-1))} },
			problems: []string{"spec.ttl.minSeconds: 0 seconds; write 1 to 604800 (the default 30 counts)",
				"spec.ttl.graceSeconds: -1 seconds; write 1 to 86400 (the default 60 counts)"},
		},
		"overflowing seconds": {
			change:   func(s *spec) { s.TTL = v1alpha1.TTL{MaxSeconds: ptr(int64(1) << 62)} },
			problems: []string{"spec.ttl.maxSeconds: 4611686018427387904 seconds; write 1 to 604800"},
		},
		"max below min": {
			change:   func(s *spec) { s.TTL = v1alpha1.TTL{MaxSeconds: ptr(int64(10))} },
			problems: []string{"spec.ttl: maxSeconds 10 is below minSeconds 30; write both"},
		},
		"selector": {
			change: func(s *spec) {
				s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "in"}}
			},
			problems: []string{`spec.podSelector: "in" is not a valid label selector operator; the policy selects no pod until this is fixed`},
		},
	}
}

// TestValidate has mistakes, their messages, and the parts that still work.
func TestValidate(t *testing.T) {
	for name, c := range slips() {
		t.Run(name, func(t *testing.T) {
			p := aPolicy("p", "", aRule("good.test"))
			c.change(&p.Spec)
			problems := fqdnnp.Validate(p)
			diff.MustEqual(t, len(c.problems), len(problems), "problems", problems)
			for i, want := range c.problems {
				path, message, _ := strings.Cut(want, ": ")
				if got := problems[i]; got.Path != path || !strings.Contains(got.Message, message) || got.Object != "policy shop/p" {
					t.Errorf("%v, want %s", got, want)
				}
			}
			s := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, p)
			if diff := cmp.Diff(problems, s.Problems, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the snapshot reports otherwise: %s", diff)
			}
			if len(problems) > 0 && problems[0].Reason == policy.ReasonInvalid {
				diff.Empty(t, s.Views, "pods that an invalid policy selects")
				return
			}
			works := c.works
			if works == nil {
				works = []string{"good.test"}
			}
			for _, n := range works {
				if !s.Views[0].Decide(policytest.Name(n)).Allowed() {
					t.Errorf("%s no longer works", n)
				}
			}
			for _, n := range []string{"late.test", "closed.test", "a.test", "xy.test"} {
				if s.Views[0].Decide(policytest.Name(n)).Matches != nil {
					t.Errorf("%s works", n)
				}
			}
		})
	}
}

// TestUnknownWordsAreStrict: a word that does not exist must not open anything.
func TestUnknownWordsAreStrict(t *testing.T) {
	p := aPolicy("p", "", aRule("a.test"))
	p.Spec.Enforcement, p.Spec.Denied, p.Spec.DNS.Unmatched, p.Spec.TTL.InUse = "audit", "no", "x", "renew"
	v := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, p).Views[0]
	if !v.Enforced || v.Denied != policy.Drop || v.Unmatched != policy.Refuse || v.Renews() {
		t.Errorf("enforced %v, %v, %v, in use renewed %v", v.Enforced, v.Denied, v.Unmatched, v.Renews())
	}
}

func TestDefaultsInGo(t *testing.T) {
	p := aPolicy("p", "", aRule("a.test"))
	v := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, p).Views[0]
	if !v.Enforced || v.Denied != policy.Reject || v.Unmatched != policy.Resolve {
		t.Errorf("enforced %v, %v, %v", v.Enforced, v.Denied, v.Unmatched)
	}
	diff.Equal(t, policy.TTL{Min: 30 * time.Second, Max: time.Hour, Grace: time.Minute, Reuse: 24 * time.Hour, InUse: policy.Renew}, v.Rules.Namespace[0].TTL, "TTL")
}

// TestInvalidPodAddresses are ignored; the pod's other addresses work.
func TestInvalidPodAddresses(t *testing.T) {
	pod := aPod("web", "x", "127.0.0.1", "10.0.0.1", "fe80::1%eth0", "224.0.0.1")
	given := len(pod.IPs)
	remote := aPod("far", "x", "0.0.0.0")
	remote.NodeName = "node-b"
	s := compile([]policy.Pod{pod, remote}, aPolicy("p", "", aRule("a.test")))
	if v := s.View(addr("10.0.0.1")); v == nil || len(v.Pod.IPs) != 1 {
		t.Errorf("the view at the good address is %v", v)
	}
	for _, a := range []string{"127.0.0.1", "fe80::1", "224.0.0.1", "0.0.0.0"} {
		if ref, known := s.Pod(addr(a)); known || s.View(addr(a)) != nil {
			t.Errorf("%s is that of %v", a, ref)
		}
	}
	if len(s.Problems) != 4 || s.Problems[0].Object != "pod shop/far" || s.Problems[1].Object != "pod shop/web" || s.Problems[1].Reason != policy.ReasonAddressInvalid {
		t.Errorf("problems %v", s.Problems)
	}
	if len(pod.IPs) != given || pod.IPs[0] != addr("127.0.0.1") {
		t.Error("the caller's addresses were changed")
	}
}
