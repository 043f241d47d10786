package cyclonus

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// outside are addresses that no pod has.
var outside = []netip.Addr{
	netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("10.1.255.255"), netip.MustParseAddr("169.254.169.254"),
	netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("127.0.0.1"),
	netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("fd00:1::ffff"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("::"), netip.MustParseAddr("::1"),
}

// generatedKinds are the ports of the generated cases, the ports next to them and a
// distant one.
func generatedKinds() []packet {
	out := []packet{{icmp, 0}}
	for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		for _, port := range []uint16{1, 52, 53, 79, 80, 81, 82, 84, 85, 7981, 65535} {
			out = append(out, packet{p, port})
		}
	}
	return out
}

// newWorld is the cluster of the generated cases: namespaces x, y and z with pods a, b
// and c each.
func newWorld() *world {
	w := &world{namespaces: map[string]map[string]string{}, remote: map[*policy.Pod]bool{}}
	for _, ns := range []string{"x", "y", "z"} {
		w.addNamespace(ns, map[string]string{"ns": ns})
		for _, name := range []string{"a", "b", "c"} {
			w.addPod(ns, name, map[string]string{"pod": name})
		}
	}
	return w
}

func (w *world) addNamespace(name string, labels map[string]string) {
	set := maps.Clone(labels)
	set["kubernetes.io/metadata.name"] = name
	w.namespaces[name] = set
}

func (w *world) addPod(ns, name string, labels map[string]string) {
	n := 11
	for _, p := range w.pods {
		n = max(n, int(p.IPs[0].As4()[3])+1)
	}
	p := &policy.Pod{
		PodRef: policy.PodRef{Namespace: ns, Name: name, UID: fmt.Sprint("uid-", n)}, Labels: labels, Phase: "Running",
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), netip.MustParseAddr(fmt.Sprintf("fd00:1::%x", n))},
	}
	for _, port := range []uint16{80, 81} {
		for _, proto := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
			p.Ports = append(p.Ports, policy.NamedPort{Name: fmt.Sprintf("serve-%d-%s", port, proto), Protocol: proto, Port: port})
		}
	}
	w.pods = append(w.pods, p)
}

// do makes the change of a generated case's action.
func (w *world) do(a *generator.Action) error {
	switch {
	case a.CreatePolicy != nil:
		w.policies = append(w.policies, a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		w.drop(a.UpdatePolicy.Policy.Namespace, a.UpdatePolicy.Policy.Name)
		w.policies = append(w.policies, a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		w.drop(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		w.addNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		w.namespaces = maps.Clone(w.namespaces)
		w.addNamespace(a.SetNamespaceLabels.Namespace, a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		ns := a.DeleteNamespace.Namespace
		w.pods = slices.DeleteFunc(slices.Clone(w.pods), func(p *policy.Pod) bool { return p.Namespace == ns })
		w.namespaces = maps.Clone(w.namespaces)
		delete(w.namespaces, ns)
	case a.CreatePod != nil:
		w.addPod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
	case a.SetPodLabels != nil:
		i := w.find(a.SetPodLabels.Namespace, a.SetPodLabels.Pod)
		p := *w.pods[i]
		p.Labels = a.SetPodLabels.Labels
		w.remote[&p] = w.remote[w.pods[i]]
		w.pods[i] = &p
	case a.DeletePod != nil:
		i := w.find(a.DeletePod.Namespace, a.DeletePod.Pod)
		w.pods = slices.Delete(slices.Clone(w.pods), i, i+1)
	case a.ReadNetworkPolicies != nil:
		// It reads: nothing changes.
	default:
		return fmt.Errorf("an action of a kind that is not known: %+v", a)
	}
	return nil
}

func (w *world) drop(ns, name string) {
	w.policies = slices.DeleteFunc(slices.Clone(w.policies), func(np *networkingv1.NetworkPolicy) bool { return np.Namespace == ns && np.Name == name })
}

func (w *world) find(ns, name string) int {
	return slices.IndexFunc(w.pods, func(p *policy.Pod) bool { return p.Namespace == ns && p.Name == name })
}

// generated returns every test case of cyclonus for a family, none left out.
func generated(podIP string) []*generator.TestCase {
	return generator.NewTestCaseGenerator(true, podIP, []string{"x", "y", "z"}, nil, nil).GenerateTestCases()
}

// TestGeneratedCases compares the compiled views with cyclonus in every state of every
// generated case, with the pods on this node or on others.
func TestGeneratedCases(t *testing.T) {
	places := map[string]func(i int, w *world){
		"all here, NetworkPolicies enforced": func(_ int, w *world) {
			w.selects, w.enforce = nobody, true
		},
		"all here, all selected": func(_ int, w *world) {
			w.selects = everyone
		},
		"some elsewhere": func(i int, w *world) {
			if i%2 == 1 {
				w.pods[i].NodeName = "other"
			}
		},
		"some known as peers alone, NetworkPolicies enforced": func(i int, w *world) {
			w.selects, w.enforce = nobody, true
			if i%3 != 0 {
				w.pods[i].NodeName = "other"
				w.remote[w.pods[i]] = true
			}
		},
	}
	kinds := generatedKinds()
	n := counts{}
	cases, states, asked := 0, 0, 0
	for name, place := range places {
		for _, podIP := range []string{"10.1.0.11", "fd00:1::b"} {
			for i, c := range generated(podIP) {
				cases++
				w, compiler := newWorld(), compile.New()
				for step, s := range c.Steps {
					for _, a := range s.Actions {
						fatal.If(t, w.do(a))
					}
					for i := range w.pods {
						place(i, w)
					}
					count, wrong := w.compare(compiler.Compile(w.input()), n, outside, kinds)
					if states++; len(wrong) > 0 {
						t.Errorf("%s, case %d of %s (%s), step %d:\n%s\n%s", name, i, podIP, c.Description, step, show(w.policies), strings.Join(wrong[:min(len(wrong), 5)], "\n"))
					}
					asked += count
					w.simplified(t)
				}
			}
		}
	}
	if asked < 1000*cases {
		t.Errorf("%d questions in %d cases", asked, cases)
	}
	t.Logf("%d cases, %d states, %d questions; nothing left out; told in other words: %v", cases, states, asked, n)
}

// simplified shows that cyclonus agrees with itself where it shortens policies, as it
// does when it runs its cases.
func (w *world) simplified(t *testing.T) {
	short, long := matcher.BuildNetworkPolicies(true, w.policies), matcher.BuildNetworkPolicies(false, w.policies)
	for _, from := range w.pods {
		for _, to := range w.pods {
			for _, traffic := range w.traffic(&end{pod: from}, to.IPs[0], []*policy.Pod{to}, packet{policy.TCP, 80}) {
				a, b := short.IsTrafficAllowed(traffic), long.IsTrafficAllowed(traffic)
				if a.Egress.IsAllowed() != b.Egress.IsAllowed() || a.Ingress.IsAllowed() != b.Ingress.IsAllowed() {
					t.Errorf("cyclonus does not agree with itself on %s to %s:\n%s", from, to, show(w.policies))
				}
			}
		}
	}
}
