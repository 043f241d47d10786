package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

// allowed is the verdict of connections that some policy allows, or that none denies.
// The others are those of the audit log's flows.
const allowed = "allowed"

// Answer is what policies say to a question of a pod.
type Answer struct {
	Pod     string `json:"pod"`
	To      string `json:"to"`
	Verdict string `json:"verdict"` // allowed, denied or would-deny
	// Message says why, and for what is denied what to write.
	Message string `json:"message"`
	// Matches are those that cover the name, the ones that decided first.
	Matches []AnswerMatch `json:"matches,omitempty"`
	// Rules, where cluster policies have rules for the pod, are all that may match, in the
	// order in which they are asked.
	Rules []explain.Rule `json:"rules,omitempty"`
	// Policies are those that select the pod, "namespace/name"; NetworkPolicies the
	// ordinary ones that select it for egress.
	Policies        []string `json:"policies,omitempty"`
	NetworkPolicies []string `json:"networkPolicies,omitempty"`
}

// AnswerMatch is a match that covers the name.
type AnswerMatch struct {
	Policy string `json:"policy"`
	Path   string `json:"path"`
	Match  string `json:"match"`
	Ports  string `json:"ports"`
	Audit  bool   `json:"audit,omitempty"`
	File   string `json:"file,omitempty"` // "" in the cluster
	Line   int    `json:"line,omitempty"`
}

// Allowed tells whether the pod may.
func (a Answer) Allowed() bool { return a.Verdict == allowed }

// String returns the answer for people, in one line.
func (a Answer) String() string {
	return plain(fmt.Sprintf("%s to %s: %s: %s", a.Pod, a.To, a.Verdict, a.Message))
}

// lines returns the answer for people: below its line the rules, one in each line.
func (a Answer) lines() []string {
	out := []string{a.String()}
	for i, r := range a.Rules {
		out = append(out, plain(fmt.Sprintf("  %d. %s", i+1, r)))
	}
	return out
}

// PodsNamed returns the pods, and what makes pods, of that name.
func (m *Manifests) PodsNamed(namespace, name string) []Pod {
	var found []Pod
	for _, p := range m.Pods {
		if p.Namespace == namespace && p.Name == name {
			found = append(found, p)
		}
	}
	return found
}

// PodWith returns a made-up pod of a namespace with labels "app=cart,tier=front". The
// error says what is wrong with them.
func PodWith(namespace, text string) (Pod, error) {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return Pod{}, fmt.Errorf("labels %q: %w; write KEY=VALUE, and a comma between two", text, err)
	}
	return madeUp(namespace, set), nil
}

// madeUp returns a pod of no manifest.
func madeUp(namespace string, set labels.Set) Pod {
	name := "a pod of " + namespace
	if len(set) > 0 {
		name += " with " + set.String()
	}
	return Pod{policy.Pod{PodRef: policy.PodRef{Namespace: namespace, Name: name, UID: "labels"}, Labels: set}, "", nil}
}

// NodeWith returns a made-up node with labels "role=edge", as the subject of a question.
func NodeWith(text string) (Pod, error) {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return Pod{}, fmt.Errorf("node %q: %w; write KEY=VALUE, and a comma between two", text, err)
	}
	name := "a node without labels"
	if len(set) > 0 {
		name = "a node with " + set.String()
	}
	return Pod{policy.Pod{PodRef: policy.NodeRef(name), Labels: set}, "", nil}, nil
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
func (m *Manifests) Ask(pod Pod, q Question, o Options) Answer {
	in := m.input()
	if in.Pods = []policy.Pod{pod.Pod}; pod.isNode() {
		in.Pods, in.Node = nil, &policy.Node{Name: pod.Name, Labels: pod.Labels}
	}
	return m.ask(&pod, q, o, compile.New().Compile(in))
}

// ask is Ask by a snapshot that has the pod.
func (m *Manifests) ask(pod *Pod, q Question, o Options, snap *policy.Snapshot) Answer {
	a := Answer{Pod: pod.name(), To: q.String(), Verdict: allowed}
	view := snap.ViewOf(pod.PodRef)
	switch {
	case pod.HostNetwork:
		a.Message = "the pod uses the host network, where only policies for nodes hold: ask with --node and the labels of its node"
		return a
	case view == nil && pod.isNode():
		a.Message = "no policy selects the node, so everything is allowed"
		return a
	case view == nil:
		a.Message = "no policy selects the pod, so everything is allowed"
		return a
	}
	as := ""
	if full, err := fqdn.ParseName(m.completed(q.Name.String(), pod.Namespace, o.ClusterDomain)); err == nil && !pod.isNode() {
		as = fmt.Sprintf("; pods ask for %s as %s", q.Name, full)
		q.Name = full
	}
	m.answer(&a, snap, view, q, o)
	if a.Message += as; pod.isNode() {
		a.Message = strings.ReplaceAll(a.Message, "the pod", "the node") + "; destinations that the node needs are allowed in any case"
	}
	return a
}

// answer answers for a pod with a view.
func (m *Manifests) answer(a *Answer, snap *policy.Snapshot, view *policy.View, q Question, o Options) {
	a.Policies, a.NetworkPolicies = view.Policies, view.NetworkPolicies
	f := q.flow()
	f.Would = !view.InForce()
	ask := policy.Query{Name: q.Name, InCluster: inside(q.Name.String(), o.ClusterDomain), Would: f.Would}
	if to := m.leads(q.Name, o); to != "" && !inside(to.String(), o.ClusterDomain) {
		ask = ask.Leave(to)
		inside := q.Name
		q.Name = to
		defer func() { a.Message += fmt.Sprintf("; %s leads to %s, which is decided in its place", inside, to) }()
	}
	d := policy.DecideAddresses(view, ask)
	f.Enter(d.Matches...)
	steps := policy.Steps(view, snap, &f)
	on := map[*policy.Rule]bool{}
	for _, step := range steps {
		on[step.Rule] = step.Asked
	}
	allows, by := policy.EvaluateAny(view, snap, f)
	if d.Reply != policy.Resolve { // no answer, no connection by the name
		if allows, by = false, nil; d.Denied != nil {
			by = d.Denied.Rule
		}
	}
	matches := slices.Clone(d.Matches)
	slices.SortStableFunc(matches, func(x, y *policy.Match) int {
		switch {
		case on[x.Rule] == on[y.Rule]:
			return 0
		case on[x.Rule]:
			return -1
		}
		return 1
	})
	for _, match := range matches {
		a.Matches = append(a.Matches, m.answerMatch(match))
	}
	a.Rules = explain.InOrder(view, steps, by, false)
	decided := slices.IndexFunc(matches, func(m *policy.Match) bool {
		return on[m.Rule] && by != nil && (m.Rule == by || m.Rule.Tier == policy.Namespace && by.Tier == policy.Namespace)
	})
	ports := ""
	switch {
	case allows && decided >= 0:
		a.Message, ports = a.Matches[decided].String(), a.Matches[decided].Ports
	case allows && by != nil:
		a.Message, ports = m.ruleAt(by), string(by.Ports)
	case allows:
		a.Message = "no rule denies it, and no other policy selects the pod"
	case by != nil:
		a.Message = m.ruleAt(by) + " denies it"
		if d.Reply != policy.Resolve {
			a.Message += ", and its question gets " + d.Reply.String()
		}
	case d.Limit != policy.NoLimit:
		a.Message = explain.Limited(&d)
	default:
		a.Message = m.why(view, q, d.Reply, a.Matches) + orByAddress(m.reaches(steps))
	}
	switch {
	case allows && q.Port == 0 && ports != "":
		a.Message += ", on " + ports
	case !allows && f.Would:
		a.Verdict = audit.WouldDeny.String()
	case !allows:
		a.Verdict = audit.Denied.String()
	}
	if pattern, err := fqdn.ParseExact(q.Name.String()); allows && err == nil && guarded(pattern) != "" {
		a.Message += "; " + guarded(pattern)
	}
	if d.Reply == policy.Resolve {
		a.Message += m.unless(explain.Asked(steps, false), by)
	}
}

// unless names the rules of cluster policies that decide first if what the name leads to is
// one of their peers.
func (m *Manifests) unless(steps []policy.Step, by *policy.Rule) string {
	const most = 3 // more would not be read
	text, n := "", 0
	for _, s := range steps {
		r := s.Rule
		if r == by || r.Tier == policy.Namespace && (by == nil || by.Tier == policy.Namespace) {
			break
		}
		switch r.Peer.Kind {
		case policy.PeerPods, policy.PeerNetworks, policy.PeerPorts:
			if !s.Asked || r.Broken || r.Tier == policy.Namespace {
				continue
			}
		default:
			continue
		}
		if n++; n <= most {
			text += fmt.Sprintf("; %s (%s) decides first where the name leads to %s", m.ruleAt(r), r.Action, r.Peer.Key)
		}
	}
	if n > most {
		text += fmt.Sprintf(", and %d more rules by their peers", n-most)
	}
	return text
}

func (m *Manifests) answerMatch(match *policy.Match) AnswerMatch {
	at := m.known[match.Policy]
	for _, p := range m.ClusterPolicies {
		if p.ID == match.Policy {
			at = p.place
		}
	}
	return AnswerMatch{
		Policy: match.Policy, Path: match.Path, Match: match.Pattern.String(), Ports: string(match.Ports), Audit: match.Audit,
		File: at.file, Line: at.at(match.Path),
	}
}

// String says where the match stands.
func (m AnswerMatch) String() string {
	text := fmt.Sprintf("%s %s (%s)", m.Policy, m.Path, m.Match)
	if m.File != "" {
		text += fmt.Sprintf(" at %s:%d", m.File, m.Line)
	}
	return text
}

// why says why a question is answered no, and what to write.
func (m *Manifests) why(view *policy.View, q Question, reply policy.Unmatched, matches []AnswerMatch) string {
	name, gets := q.Name.String(), ""
	if reply != policy.Resolve {
		gets = ", and its question gets " + reply.String()
	}
	if len(view.Policies) == 0 {
		return "no rule of a NetworkPolicy or of a cluster policy leads to " + name + gets
	}
	reason := "no match of " + strings.Join(view.Policies, ", ") + " covers " + name
	for _, match := range matches {
		switch {
		case match.Audit && view.InForce():
			reason = match.String() + " covers it, but an Audit policy opens nothing"
		default:
			reason = match.String() + " covers it, but on " + match.Ports + " alone"
		}
	}
	reason += gets
	if !view.InForce() {
		reason += "; it passes as long as all of these policies are Audit"
	}
	return fmt.Sprintf("%s; to allow it write under spec.egress of %s: - {matches: [{name: %s}]%s}", reason, view.Policies[0], name, portsText(q))
}

// portsText returns the ports of a question as a rule writes them.
func portsText(q Question) string {
	switch {
	case q.Protocol == policy.AnyProtocol || q.Protocol == icmp:
		return ""
	case q.Port == 0:
		return ", ports: [{protocol: " + strings.ToUpper(q.Protocol.String()) + "}]"
	}
	return fmt.Sprintf(", ports: [{protocol: %s, port: %d}]", strings.ToUpper(q.Protocol.String()), q.Port)
}
