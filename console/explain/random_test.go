package explain

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// draw makes small policies, of few names and ports, so that much of it meets.
type draw struct{ *rand.Rand }

func (d draw) one(of ...string) string { return of[d.IntN(len(of))] }

func (d draw) name() string {
	parts := []string{d.one("a", "b"), d.one("x", "y"), "test"}
	return strings.Join(parts[d.IntN(2):], ".")
}

func (d draw) match() (m v1alpha1.Match) {
	n := d.name()
	switch d.IntN(4) {
	case 0:
		n = d.one("*.", "**.") + n
		m.Pattern = &n
	case 1:
		n = "*"
		m.Pattern = &n
	default:
		m.Name = &n
	}
	return m
}

func (d draw) port() (p v1alpha1.Port) {
	protocol := v1alpha1.Protocol(d.one("TCP", "UDP", "ALL"))
	p.Protocol = &protocol
	if d.IntN(3) > 0 {
		first := int32(1 + d.IntN(3))
		p.Port = &first
		if d.IntN(2) == 0 {
			last := first + int32(d.IntN(2))
			p.EndPort = &last
		}
	}
	return p
}

func (d draw) policy(i int) *v1alpha1.FQDNNetworkPolicy {
	p := &v1alpha1.FQDNNetworkPolicy{}
	p.Namespace, p.Name = "shop", fmt.Sprint("p", i)
	switch d.IntN(4) {
	case 0: // everybody
	case 1:
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": "other"}
	case 2:
		p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
	default:
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": "cart"}
	}
	if d.IntN(3) == 0 {
		p.Spec.Enforcement = v1alpha1.EnforcementAudit
	}
	for range d.IntN(3) {
		r := v1alpha1.EgressRule{}
		for range 1 + d.IntN(2) {
			r.Matches = append(r.Matches, d.match())
		}
		for range d.IntN(3) {
			r.Ports = append(r.Ports, d.port())
		}
		if len(r.Ports) > 0 && d.IntN(3) == 0 {
			r.ServerName = v1alpha1.ServerNameRequire
			for i := range r.Ports {
				r.Ports[i].Protocol = new(v1alpha1.ProtocolTCP)
			}
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

func (d draw) target() string {
	to := d.name()
	switch d.IntN(4) {
	case 0:
	case 1:
		to += "/" + d.one("icmp", "tcp", "udp")
	default:
		to += fmt.Sprintf(":%d/%s", 1+d.IntN(4), d.one("tcp", "udp", "sctp"))
	}
	return to
}

// plainly is the slow twin: it reads the manifests and returns the verdict for a pod that
// has not queried any name yet.
func plainly(t *testing.T, pod policy.Pod, policies []*v1alpha1.FQDNNetworkPolicy, to Target) Verdict {
	t.Helper()
	enforced, audited, opens, covered := false, false, false, false
	for _, p := range policies {
		sel, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		fatal.If(t, err)
		if !sel.Matches(labels.Set(pod.Labels)) {
			continue
		}
		audit := p.Spec.Enforcement == v1alpha1.EnforcementAudit
		enforced, audited = enforced || !audit, audited || audit
		for _, r := range p.Spec.Egress {
			if reaches(t, r, to) {
				opens, covered = opens || !audit, true
			}
		}
	}
	switch {
	case !enforced && !audited:
		return Allowed
	case !enforced && covered:
		return Allowed
	case !enforced:
		return WouldDeny
	case opens:
		return OnceAsked
	}
	return Denied
}

func reaches(t *testing.T, r v1alpha1.EgressRule, to Target) bool {
	t.Helper()
	named := false
	for _, m := range r.Matches {
		text := m.Pattern
		if m.Name != nil {
			text = m.Name
		}
		p, err := fqdn.ParsePattern(*text)
		fatal.If(t, err)
		named = named || p.Matches(to.Name)
	}
	if !named || len(r.Ports) == 0 {
		return named
	}
	for _, p := range r.Ports {
		all := p.Port == nil && *p.Protocol == v1alpha1.ProtocolALL
		if to.portless() {
			if all {
				return true
			}
			continue
		}
		protocol := *p.Protocol == v1alpha1.ProtocolALL || strings.EqualFold(string(*p.Protocol), to.Protocol.String())
		if to.Port == 0 && (protocol || to.Protocol == policy.AnyProtocol) {
			return true // any port will do
		}
		first, last := int32(0), int32(65535)
		if p.Port != nil {
			if first, last = *p.Port, *p.Port; p.EndPort != nil {
				last = *p.EndPort
			}
		}
		if protocol && first <= int32(to.Port) && int32(to.Port) <= last {
			return true
		}
	}
	return false
}

// TestTwin: the verdict equals a plain reading of the manifests, and the advice against a
// denial makes this name and port allowed, and no other.
func TestTwin(t *testing.T) {
	denials := 0
	rounds := short.Rounds(250, 1_000, 10_000)
	for seed := range uint64(rounds) {
		d := draw{rand.New(rand.NewPCG(seed, 1))}
		var policies []*v1alpha1.FQDNNetworkPolicy
		for i := range d.IntN(4) {
			policies = append(policies, d.policy(i))
		}
		to := target(t, d.target())
		f := about(t, cart(), policies)
		e := Explain(Question{To: to}, f)
		diff.MustEqual(t, plainly(t, cart(), policies, to), e.Verdict, "seed", seed, "to", to, e.Reason, "under", policies)
		if e.Verdict != Denied && e.Verdict != WouldDeny {
			continue
		}
		denials++
		adviceHelps(t, seed, to, e, f)
	}
	if denials < rounds/10 {
		t.Errorf("%d denials: the test shows little", denials)
	}
}

func adviceHelps(t *testing.T, seed uint64, to Target, before Explanation, f Facts) {
	t.Helper()
	if before.Advice == nil || before.Advice.Manifest == "" {
		t.Fatalf("seed %d: no manifest against %s", seed, before.Reason)
	}
	more := manifests(t, before.Advice.Manifest)
	after := about(t, cart(), append(f.Policies, more...))
	if len(more) != 1 || after.View.Enforced != f.View.Enforced {
		t.Fatalf("seed %d: the manifest changes what holds for the pod:\n%s", seed, before.Advice.Manifest)
	}
	asked := to
	if to.Port == 0 && !to.portless() {
		asked.Protocol, asked.Port = cmp.Or(to.Protocol, policy.TCP), likelyPort
	}
	if v := Explain(Question{To: asked}, after).Verdict; v != OnceAsked && v != Allowed {
		t.Errorf("seed %d: to %s it is %s under\n%s", seed, asked, v, before.Advice.Manifest)
	}
	// Least: another name, and another port, are as they were.
	name := to
	name.Name = "\x05other" + to.Name
	port := to
	port.Protocol, port.Port = policy.SCTP, 9999
	for _, other := range []Target{name, port} {
		if other == port && to.portless() {
			continue // ICMP needs every port
		}
		was, is := Explain(Question{To: other}, f).Verdict, Explain(Question{To: other}, after).Verdict
		diff.Equal(t, was, is, "seed", seed, "to", other, "under", before.Advice.Manifest)
	}
}
