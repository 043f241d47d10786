package cyclonus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// modes are how a probe dials: a pod's address, or that of its Service. In the third
// mode of cyclonus pods ask for the Service's name; the address is the same.
var modes = []generator.ProbeMode{generator.ProbeModePodIP, generator.ProbeModeServiceIP}

// dialling returns a case with every probe in some modes.
func dialling(c *generator.TestCase, modes ...generator.ProbeMode) *generator.TestCase {
	out := &generator.TestCase{Description: c.Description, Tags: c.Tags}
	for _, s := range c.Steps {
		actions := s.Actions
		for _, m := range modes {
			p := *s.Probe
			p.Mode = m
			out.Steps = append(out.Steps, generator.NewTestStep(&p, actions...))
			actions = nil
		}
	}
	return out
}

// egressOnly returns a case in which only egress is judged: whatever a policy says of ingress is
// an allow-all in it, which the agents do not enforce then.
func egressOnly(c *generator.TestCase) (*generator.TestCase, bool) {
	out := &generator.TestCase{Description: c.Description, Tags: c.Tags}
	any := false
	strip := func(np *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
		np = np.DeepCopy()
		if np.Spec.Ingress = nil; slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		}
		any = any || hasEgress(np)
		return np
	}
	for _, s := range c.Steps {
		var actions []*generator.Action
		for _, a := range s.Actions {
			b := *a
			if b.CreatePolicy != nil {
				b.CreatePolicy = &generator.CreatePolicyAction{Policy: strip(b.CreatePolicy.Policy)}
			}
			if b.UpdatePolicy != nil {
				b.UpdatePolicy = &generator.UpdatePolicyAction{Policy: strip(b.UpdatePolicy.Policy)}
			}
			actions = append(actions, &b)
		}
		out.Steps = append(out.Steps, generator.NewTestStep(s.Probe, actions...))
	}
	return out, any
}

// tally is what became of the cases.
type tally struct {
	passed, failed int
	skipped        map[string]int // by the reason
	sent           map[lab.Outcome]int
	loopback       int
	answers        map[string]int // by protocol and outcome
}

// TestCases runs cyclonus' test cases packet by packet: two nodes with an agent each,
// nine pods and more, TCP, UDP and SCTP, IPv4 and IPv6, pods and Services. What
// arrived is compared with what cyclonus' simulation of the policies expects. The agents
// enforce each case as cyclonus wrote it, in both directions; then egress alone, for pods that
// an FQDNNetworkPolicy selects.
func TestCases(t *testing.T) {
	logrus.SetLevel(logrus.PanicLevel)
	g := newGround(t)
	sum := &tally{skipped: map[string]int{}, sent: map[lab.Outcome]int{}, answers: map[string]int{}}
	for _, enforce := range []bool{true, false} {
		for _, v6 := range []bool{false, true} {
			c := newCluster(g, enforce, v6)
			resources, err := probe.NewDefaultResources(c, []string{"x", "y", "z"}, []string{"a", "b", "c"}, []int{80, 81},
				[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, nil, 60, true, "")
			fatal.If(t, err)
			if !v6 {
				text, err := c.manifests()
				fatal.If(t, err)
				g.start(map[string]string{"cluster.yaml": text}, enforce)
				c.settle(t, resources)
			}
			begun := time.Now()
			c.run(t, resources, sum)
			t.Logf("NetworkPolicies enforced %v, IPv6 %v: %s, of that %s for changes; probes %v", enforce, v6, time.Since(begun).Round(time.Second), c.changing.Round(time.Second), c.sent)
			for outcome, n := range c.sent {
				sum.sent[outcome] += n
			}
			sum.loopback += c.loopback
		}
		if enforce {
			g.dns(t)
		}
	}
	sum.judge(t)
}

// cases returns the cases of a cluster. Each case as it was written runs in one family and in all modes, each of those
// for egress alone that differ in one family and in one mode: more takes too long.
func (c *cluster) cases(t *testing.T, podIP string, sum *tally) (out []*generator.TestCase) {
	t.Helper()
	family := 0
	if c.v6 {
		family = 1
	}
	known := map[string]bool{}
	for i, whole := range generated(podIP) {
		if c.enforce {
			if i%2 != family {
				sum.skipped["whole, in the other family"]++
				continue
			}
			out = append(out, dialling(whole, modes...))
			continue
		}
		stripped, egress := egressOnly(whole)
		text, err := json.Marshal(stripped.Steps)
		switch n := len(known); {
		case err != nil:
			t.Fatal(err)
		case !egress:
			sum.skipped["no policy for egress"]++
			continue
		case known[string(text)]:
			sum.skipped["another, but for ingress, is the same"]++
			continue
		case n%2 != family:
			sum.skipped["for egress alone, in the other family"]++
		default:
			out = append(out, dialling(stripped, modes[n/2%2]))
		}
		known[string(text)] = true
	}
	return out
}

// run runs the cases.
func (c *cluster) run(t *testing.T, resources *probe.Resources, sum *tally) {
	t.Helper()
	pod, err := resources.GetPod("z", "c")
	fatal.If(t, err)
	interpreter := connectivity.NewInterpreter(c, resources, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase: true, VerifyClusterStateBeforeTestCase: true, BatchJobs: true, IgnoreLoopback: true,
	})
	for i, tc := range c.cases(t, pod.IP, sum) {
		broken := len(c.broken)
		result := interpreter.ExecuteTestCase(tc)
		sum.count(result)
		c.broken = append(c.broken, c.inbox.gaveUp()...)
		if what := wrong(result, tc); what != "" || len(c.broken) > broken {
			t.Errorf("case %d, enforced %v, IPv6 %v: %s\n%s\n%s", i, c.enforce, c.v6, tc.Description, what, strings.Join(c.broken[broken:min(len(c.broken), broken+5)], "\n"))
			if sum.failed++; sum.failed > 5 {
				t.Fatal("enough")
			}
			continue
		}
		sum.passed++
	}
}

// judge says what became of the cases, and fails if they were too few to say anything.
func (sum *tally) judge(t *testing.T) {
	t.Helper()
	var why []string
	total := 0
	for reason, n := range sum.skipped {
		why, total = append(why, fmt.Sprintf("%d: %s", n, reason)), total+n
	}
	slices.Sort(why)
	t.Logf("passed %d, failed %d, skipped %d (%s); probes sent: %v, %v; %d of a pod to itself left out",
		sum.passed, sum.failed, total, strings.Join(why, "; "), sum.sent, sum.answers, sum.loopback)
	if n := sum.sent[lab.Answered] + sum.sent[lab.Refused] + sum.sent[lab.Silent]; sum.passed+sum.failed < 300 || n < 200000 {
		t.Errorf("%d cases and %d probes are too few", sum.passed, n)
	}
	for _, o := range []lab.Outcome{lab.Answered, lab.Refused, lab.Silent} {
		if sum.sent[o] < 20000 {
			t.Errorf("%d probes are too few that are %s", sum.sent[o], o)
		}
	}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		for _, c := range []probe.Connectivity{probe.ConnectivityAllowed, probe.ConnectivityBlocked} {
			if sum.answers[fmt.Sprint(p, " ", c)] < 5000 {
				t.Errorf("%v: too few of %s are %s", sum.answers, p, c)
			}
		}
	}
}

// count adds up what became of the probes of a case.
func (sum *tally) count(r *connectivity.Result) {
	for _, s := range r.Steps {
		for _, key := range s.LastKubeProbe().Wrapped.Keys() {
			for _, g := range s.LastKubeProbe().Get(key.From, key.To).JobResults {
				if key.From != key.To {
					sum.answers[fmt.Sprint(g.Job.Protocol, " ", g.Combined)]++
				}
			}
		}
	}
}

// settle waits until every pod reaches every other: new links take a moment.
func (c *cluster) settle(t *testing.T, resources *probe.Resources) {
	t.Helper()
	open := generator.NewSingleStepTestCase("nothing is denied", generator.NewStringSet(), generator.NewAllAvailable(generator.ProbeModePodIP))
	interpreter := connectivity.NewInterpreter(c, resources, &connectivity.InterpreterConfig{BatchJobs: true, IgnoreLoopback: true})
	for until := time.Now().Add(2 * time.Minute); ; {
		result := interpreter.ExecuteTestCase(open)
		if result.Err == nil && result.Passed(true) && len(c.broken) == 0 {
			c.inbox.gaveUp()
			return
		}
		if time.Now().After(until) {
			t.Fatalf("pods do not reach each other: %v\n%s\n%s", result.Err, wrong(result, open), strings.Join(c.broken, "\n"))
		}
		c.broken = nil
	}
}

// wrong returns what of a case did not come as cyclonus expects it, "" if all did.
func wrong(r *connectivity.Result, c *generator.TestCase) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	if len(r.Steps) != len(c.Steps) {
		return fmt.Sprintf("%d steps of %d", len(r.Steps), len(c.Steps))
	}
	var b strings.Builder
	for i, s := range r.Steps {
		if s.Passed(true) {
			continue
		}
		fmt.Fprintf(&b, "step %d, %s:\n%s%s", i, c.Steps[i].Probe.Mode, show(s.KubePolicies), s.LastComparison().RenderSuccessTable())
		for _, key := range s.LastKubeProbe().Wrapped.Keys() {
			got, want := s.LastKubeProbe().Get(key.From, key.To), s.SimulatedProbe.Get(key.From, key.To)
			for job, g := range got.JobResults {
				if w := want.JobResults[job]; key.From != key.To && g.Combined != w.Combined {
					fmt.Fprintf(&b, "%s to %s %s: %s, cyclonus: %s\n", key.From, key.To, job, g.Combined, w.Combined)
				}
			}
		}
		break
	}
	return b.String()
}
