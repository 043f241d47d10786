package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/policy/peers"
)

// Answer is what policies say to a question about a pod: the explanation from facts that are made of
// manifests.
type Answer struct {
	explain.Explanation
	// Direction is that of the rules that decide, "egress" or "ingress", of a question with From.
	Direction string `json:"direction,omitempty"`
}

// Allowed tells whether the pod may.
func (a Answer) Allowed() bool { return a.Verdict == explain.Allowed || a.Verdict == explain.Checked }

// passes tells whether the connection passes today.
func (a Answer) passes() bool { return a.Verdict != explain.Denied }

// String returns the answer for people, in one line.
func (a Answer) String() string {
	asked := a.Pod + " to " + a.To
	if a.From != "" {
		asked = a.From + " to " + a.Pod + " on " + a.To
	}
	return console.Safe(fmt.Sprintf("%s: %s: %s", asked, a.Verdict, a.Reason))
}

// lines returns the answer for people: below its line the rules, the notes, and what to do.
func (a Answer) lines() []string {
	out := []string{a.String()}
	for i, r := range a.Rules {
		out = append(out, console.Safe(fmt.Sprintf("  %d. %s", i+1, r)))
	}
	for _, n := range a.Notes {
		out = append(out, console.Safe("  note: "+n))
	}
	if a.Advice == nil {
		return out
	}
	for _, s := range a.Advice.Do {
		out = append(out, console.Safe("  do: "+s))
	}
	for _, manifest := range []string{a.Advice.Manifest, a.Advice.NetworkPolicy} {
		if manifest == "" {
			continue
		}
		out = append(out, "---")
		for line := range strings.SplitSeq(strings.TrimSuffix(manifest, "\n"), "\n") {
			out = append(out, console.Safe(line))
		}
	}
	return out
}

// PodsNamed returns the pods, and what makes pods, of that name.
func (m *Manifests) PodsNamed(namespace, name string) []Pod {
	return slices.DeleteFunc(slices.Clone(m.Pods), func(p Pod) bool { return p.Namespace != namespace || p.Name != name })
}

// PodWith returns a made-up pod of a namespace with labels "app=cart,tier=front". The
// error says what is wrong with them.
func PodWith(namespace, text string) (Pod, error) {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return Pod{}, fmt.Errorf("%q: %w; write KEY=VALUE, and a comma between two", text, err)
	}
	return madeUp(namespace, set), nil
}

// madeUp returns a pod of no manifest.
func madeUp(namespace string, set labels.Set) Pod {
	name := "a pod of " + namespace
	if len(set) > 0 {
		name += " with " + set.String()
	}
	return Pod{Pod: policy.Pod{PodRef: policy.PodRef{Namespace: namespace, Name: name, UID: "labels"}, Labels: set}}
}

// NodeWith returns a made-up node with labels "role=edge", as the subject of a question.
func NodeWith(text string) (Pod, error) {
	node, err := PodWith("", text)
	name := "a node without labels"
	if len(node.Labels) > 0 {
		name = "a node with " + labels.Set(node.Labels).String()
	}
	node.PodRef = policy.NodeRef(name)
	return node, err
}

// isNode tells whether the pod stands for a node.
func (p *Pod) isNode() bool { return p.Namespace == "" }

// name returns how answers call the pod.
func (p *Pod) name() string {
	switch p.Kind {
	case "":
		return p.Name
	case "Pod":
		return "pod " + p.PodRef.String()
	}
	return strings.ToLower(p.Kind) + " " + p.PodRef.String()
}

// Ask returns the policies' answer to a pod's question: whether it may connect once it has
// queried the name. The name's addresses, and the guard against rebinding, are unknown to
// manifests.
func (m *Manifests) Ask(pod Pod, to explain.Target, o Options) Answer {
	return m.ask(&pod, to, o, m.snapshot(o, pod))
}

// snapshot compiles the manifests for pods, and for a node.
func (m *Manifests) snapshot(o Options, pods ...Pod) *policy.Snapshot {
	in := m.input(o)
	in.Pods, in.Namespaces = nil, maps.Clone(in.Namespaces)
	for i := range pods {
		p := &pods[i]
		if p.isNode() {
			in.Node = &policy.Node{Name: p.Name, Labels: p.Labels, Interfaces: []string{policy.AnyInterface}, Addrs: p.IPs}
			continue
		}
		in.Pods, in.Namespaces[p.Namespace] = append(in.Pods, p.Pod), m.namespaceLabels(p.Namespace)
	}
	for name, addrs := range m.nodeAddrs {
		in.Nodes = append(in.Nodes, peers.Node(name, m.Nodes[name], addrs))
	}
	return compile.New().Compile(in)
}

// ask is Ask by a snapshot that has the pod.
func (m *Manifests) ask(pod *Pod, to explain.Target, o Options, snap *policy.Snapshot) Answer {
	asked := to
	if full, err := fqdn.ParseName(m.completed(to.Name.String(), pod.Namespace, o.ClusterDomain)); err == nil && !pod.isNode() {
		asked.Name = full
	}
	f, name := m.facts(pod, asked.Name, o, snap), asked.Name
	if f.Asked != nil {
		name = f.Asked.Left
	}
	a := Answer{Explanation: explain.Explain(explain.Question{To: asked}, f)}
	if a.Pod, a.To = pod.name(), to.String(); a.Verdict == explain.OnceAsked {
		a.Verdict = explain.Allowed // the question is about a pod that has queried the name
	}
	if asked.Name != to.Name {
		a.Notes = append(a.Notes, fmt.Sprintf("pods ask for %s as %s", to.Name, asked.Name))
	}
	if pod.isNode() {
		a.Notes = append(a.Notes, "destinations that the node needs are allowed in any case")
	}
	if v := f.View; a.Allowed() && v != nil && len(v.NetworkPolicies) > 0 && !v.ImpliesDNS() {
		a.Notes = append(a.Notes, "the pod's rules decide about its DNS queries too: ask for its resolver, such as by -n kube-system --labels k8s-app=kube-dns --from NAMESPACE/POD --to 53/udp")
	}
	if pattern, err := fqdn.ParseExact(name.String()); a.Allowed() && err == nil && guarded(pattern) != "" {
		a.Notes = append(a.Notes, guarded(pattern))
	}
	return a
}

// facts are what manifests tell of a pod and a name.
func (m *Manifests) facts(pod *Pod, name fqdn.Name, o Options, snap *policy.Snapshot) explain.Facts {
	services := m.dialledServices(o)
	f := explain.Facts{
		Pod: pod.Pod, View: snap.ViewOf(pod.PodRef), Snapshot: snap, Domain: services.Domain, Unresolved: true, Place: m.ruleAt,
		SeesCluster: func(string) bool { return true }, // what the caller may not read is not there
		Engine:      &explain.Engine{Endpoint: netpolicyfor.Endpoint(), Services: services, Labels: m.namespaceLabels(pod.Namespace)},
	}
	for _, p := range m.Policies {
		switch {
		case p.ours != nil:
			f.Engine.ClusterPolicies = append(f.Engine.ClusterPolicies, p.ours)
		case p.own != nil && p.namespace == pod.Namespace:
			f.Policies = append(f.Policies, p.own)
		}
	}
	f.NetworkPolicies = m.networkPoliciesOf(pod.Namespace)
	if to := m.leads(name, o); to != "" && !inside(to.String(), o.ClusterDomain) {
		f.Asked = &recent.Decision{Left: to}
	}
	return f
}

func (m *Manifests) networkPoliciesOf(namespace string) (out []*networkingv1.NetworkPolicy) {
	for _, p := range m.Policies {
		if p.network != nil && p.namespace == namespace {
			out = append(out, p.network)
		}
	}
	return out
}
