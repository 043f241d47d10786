package compile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
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
				s.Egress = []v1alpha1.EgressRule{aRule(append(times(MaxMatches, "good.test"), "late.test")...)}
			},
			problems: []string{"spec.egress[0].matches: 65 matches; write at most 64"},
		},
		"too many rules": {
			change:   func(s *spec) { s.Egress = append(times(MaxRules, good), aRule("late.test")) },
			problems: []string{"spec.egress: 33 rules; write at most 32"},
		},
		"too many ports": {
			change:   func(s *spec) { s.Egress[0].Ports = times(MaxPorts+1, tcp(1)) },
			problems: []string{"spec.egress[0].ports: 33 ports; write at most 32"},
		},
		"one bad port": {
			change:   func(s *spec) { s.Egress[0].Ports = []v1alpha1.Port{tcp(0), tcp(1)} },
			problems: []string{"spec.egress[0].ports[0].port: 0 is no port"},
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
			problems: []string{`spec.podSelector: "in" is not a valid label selector operator; the policy selects no pod until this is mended`},
		},
	}
}

// TestValidate goes through the slips: what is reported, and what still works.
func TestValidate(t *testing.T) {
	for name, c := range slips() {
		t.Run(name, func(t *testing.T) {
			p := aPolicy("p", "", aRule("good.test"))
			c.change(&p.Spec)
			problems := Validate(&p)
			if len(problems) != len(c.problems) {
				t.Fatalf("problems %v", problems)
			}
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
				if len(s.Views) > 0 {
					t.Error("an invalid policy selects a pod")
				}
				return
			}
			works := c.works
			if works == nil {
				works = []string{"good.test"}
			}
			for _, n := range works {
				if !s.Views[0].Decide(mustName(t, n)).Allowed() {
					t.Errorf("%s no longer works", n)
				}
			}
			for _, n := range []string{"late.test", "closed.test", "a.test", "xy.test"} {
				if s.Views[0].Decide(mustName(t, n)).Matches != nil {
					t.Errorf("%s works", n)
				}
			}
		})
	}
}

// TestUnknownWordsAreStrict: a word that does not exist must not open anything.
func TestUnknownWordsAreStrict(t *testing.T) {
	p := aPolicy("p", "", aRule("a.test"))
	p.Spec.Enforcement, p.Spec.Denied, p.Spec.DNS.Unmatched = "audit", "no", "x"
	v := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, p).Views[0]
	if !v.Enforced || v.Denied != policy.Drop || v.Unmatched != policy.Refuse {
		t.Errorf("enforced %v, %v, %v", v.Enforced, v.Denied, v.Unmatched)
	}
}

func TestPorts(t *testing.T) {
	proto := func(p v1alpha1.Protocol) *v1alpha1.Protocol { return &p }
	for _, c := range []struct {
		ports    []v1alpha1.Port
		want     policy.PortSet
		problems string
	}{
		{nil, "any", ""},
		{[]v1alpha1.Port{{}}, "any", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(443))}}, "tcp/443", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(443)), EndPort: ptr(int32(8443))}}, "tcp/443-8443", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(5)), EndPort: ptr(int32(5))}}, "tcp/5", ""},
		{[]v1alpha1.Port{{Protocol: proto("UDP")}}, "udp", ""},
		{[]v1alpha1.Port{{Protocol: proto("SCTP"), Port: ptr(int32(7))}}, "sctp/7", ""},
		{[]v1alpha1.Port{{Protocol: proto("ALL")}}, "any", ""},
		{[]v1alpha1.Port{{Protocol: proto("ALL"), Port: ptr(int32(53))}}, "tcp/53,udp/53,sctp/53", ""},
		{[]v1alpha1.Port{{Protocol: proto("ALL"), Port: ptr(int32(1)), EndPort: ptr(int32(2))}}, "tcp/1-2,udp/1-2,sctp/1-2", ""},
		{[]v1alpha1.Port{tcp(80), tcp(443), {Protocol: proto("UDP"), Port: ptr(int32(443))}}, "tcp/80,tcp/443,udp/443", ""},
		{[]v1alpha1.Port{{Port: ptr(int32(1)), EndPort: ptr(int32(65535))}}, "tcp/1-65535", ""},
		{[]v1alpha1.Port{{Protocol: proto("tcp"), Port: ptr(int32(1))}}, "", `p[0].protocol "tcp" is unknown; write TCP, UDP, SCTP or ALL`},
		{[]v1alpha1.Port{{Port: ptr(int32(-1))}}, "", "p[0].port -1 is no port; write 1 to 65535, or leave it out for every port"},
		{[]v1alpha1.Port{{Port: ptr(int32(1)), EndPort: ptr(int32(65536))}}, "", "p[0].endPort 65536 is no port; write 1 to 65535, or leave it out for every port"},
		{[]v1alpha1.Port{{EndPort: ptr(int32(5))}}, "", "p[0].endPort endPort 5 stands alone; write the first port of the range as port"},
		{[]v1alpha1.Port{{Port: ptr(int32(6)), EndPort: ptr(int32(5))}}, "", "p[0].endPort endPort 5 is below port 6; write the greater one as endPort"},
	} {
		r := &parsed{}
		got := r.ports("p", c.ports)
		var problems []string
		for _, p := range r.problems {
			problems = append(problems, p.Path+" "+p.Message)
		}
		if got != c.want || strings.Join(problems, "; ") != c.problems {
			t.Errorf("%+v: %q, %q; want %q, %q", c.ports, got, problems, c.want, c.problems)
		}
	}
}

func TestDefaultsInGo(t *testing.T) {
	p := aPolicy("p", "", aRule("a.test"))
	v := compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, p).Views[0]
	if !v.Enforced || v.Denied != policy.Reject || v.Unmatched != policy.Resolve {
		t.Errorf("enforced %v, %v, %v", v.Enforced, v.Denied, v.Unmatched)
	}
	if want := (policy.TTL{Min: 30 * time.Second, Max: time.Hour, Grace: time.Minute}); v.Entries[0].TTL != want {
		t.Errorf("TTL %v", v.Entries[0].TTL)
	}
}

func TestLifetime(t *testing.T) {
	ttl := policy.TTL{Min: 30 * time.Second, Max: time.Hour, Grace: time.Minute}
	for in, want := range map[uint32]time.Duration{
		0: 90 * time.Second, 29: 90 * time.Second, 30: 90 * time.Second, 31: 91 * time.Second, 3600: 61 * time.Minute, 3601: 61 * time.Minute,
		1<<31 - 1: 61 * time.Minute, 1 << 31: 90 * time.Second, 1<<32 - 1: 90 * time.Second,
	} {
		if got := ttl.Lifetime(in); got != want {
			t.Errorf("%d: %v, want %v", in, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	got := fmt.Sprint(policy.Resolve, policy.NXDomain, policy.Refuse, policy.Reject, policy.Drop, policy.Allow, policy.AnyProtocol, policy.TCP, policy.UDP, policy.SCTP, policy.Protocol(47))
	if want := "Resolve NXDomain Refuse Reject Drop Allow any tcp udp sctp 47"; got != want {
		t.Errorf("%s", got)
	}
}

func TestAcceptance(t *testing.T) {
	part := policy.Problem{Reason: policy.ReasonPartiallyInvalid, Path: "spec.x", Message: "write y"}
	whole := policy.Problem{Reason: policy.ReasonInvalid, Message: "no"}
	for _, c := range []struct {
		problems []policy.Problem
		accepted bool
		want     string
	}{
		{nil, true, "Accepted every part of the policy works"},
		{[]policy.Problem{part}, true, "PartiallyInvalid spec.x: write y"},
		{[]policy.Problem{part, whole}, false, "Invalid spec.x: write y\nno"},
		{times(8, part), true, "PartiallyInvalid " + strings.Join(times(8, "spec.x: write y"), "\n")},
		{times(20, part), true, "PartiallyInvalid " + strings.Join(times(8, "spec.x: write y"), "\n") + "\nand more"},
	} {
		accepted, reason, message := policy.Acceptance(c.problems)
		if got := reason + " " + message; accepted != c.accepted || got != c.want {
			t.Errorf("%v, %s", accepted, got)
		}
	}
}
