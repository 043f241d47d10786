package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
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
	File   string `json:"file"`
	Line   int    `json:"line"`
}

// Allowed tells whether the pod may.
func (a Answer) Allowed() bool { return a.Verdict == allowed }

// String returns the answer for people, in one line.
func (a Answer) String() string {
	return plain(fmt.Sprintf("%s to %s: %s: %s", a.Pod, a.To, a.Verdict, a.Message))
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
	name := "a pod of " + namespace + " with " + set.String()
	return Pod{policy.Pod{PodRef: policy.PodRef{Namespace: namespace, Name: name, UID: "labels"}, Labels: set}, ""}, nil
}

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
func (m *Manifests) Ask(pod Pod, q Question) Answer {
	in := m.input()
	in.Pods = []policy.Pod{pod.Pod}
	a := Answer{Pod: pod.name(), To: q.String(), Verdict: allowed}
	view := compile.New().Compile(in).ViewOf(pod.PodRef)
	switch {
	case pod.HostNetwork:
		a.Message = "the pod uses the host network, where policies do not hold"
		return a
	case view == nil:
		a.Message = "no policy selects the pod, so everything is allowed"
		return a
	}
	a.Policies, a.NetworkPolicies = view.Policies, view.NetworkPolicies
	open := func(m *policy.Match) bool { return q.within(m.Ports) && (!m.Audit || !view.Enforced) }
	matches := slices.Clone(view.Decide(q.Name).Matches)
	slices.SortStableFunc(matches, func(x, y *policy.Match) int {
		switch {
		case open(x) == open(y):
			return 0
		case open(x):
			return -1
		}
		return 1
	})
	for _, match := range matches {
		a.Matches = append(a.Matches, m.answerMatch(match))
	}
	if len(matches) > 0 && open(matches[0]) {
		a.Message = a.Matches[0].String()
		if q.Port == 0 {
			a.Message += ", on " + a.Matches[0].Ports
		}
		return a
	}
	anywhere, some := m.reaches(view, q)
	if anywhere != "" {
		a.Message = anywhere
		return a
	}
	a.Verdict = audit.Denied.String()
	if !view.Enforced {
		a.Verdict = audit.WouldDeny.String()
	}
	a.Message = m.why(view, q, a.Matches) + orByAddress(some)
	return a
}

func (m *Manifests) answerMatch(match *policy.Match) AnswerMatch {
	at := m.known[match.Policy]
	return AnswerMatch{
		Policy: match.Policy, Path: match.Path, Match: match.Pattern.String(), Ports: string(match.Ports), Audit: match.Audit,
		File: at.file, Line: at.at(match.Path),
	}
}

// String says where the match stands.
func (m AnswerMatch) String() string {
	return fmt.Sprintf("%s %s (%s) at %s:%d", m.Policy, m.Path, m.Match, m.File, m.Line)
}

// why says why a question is answered no, and what to write.
func (m *Manifests) why(view *policy.View, q Question, matches []AnswerMatch) string {
	name := q.Name.String()
	reason := "no match of " + strings.Join(view.Policies, ", ") + " covers " + name
	for _, match := range matches {
		switch {
		case match.Audit && view.Enforced:
			reason = match.String() + " covers it, but an Audit policy opens nothing"
		default:
			reason = match.String() + " covers it, but on " + match.Ports + " alone"
		}
	}
	if len(matches) == 0 && view.Unmatched != policy.Resolve {
		reason += ", and its question gets " + view.Unmatched.String()
	}
	if !view.Enforced {
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
