package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/fqdn"
)

func (in *inquiry) advice() *Advice {
	if in.said.Advice == nil {
		in.said.Advice = &Advice{}
	}
	return in.said.Advice
}

// do adds a sentence of advice.
func (in *inquiry) do(format string, args ...any) {
	a := in.advice()
	if s := fmt.Sprintf(format, args...); !slices.Contains(a.Do, s) {
		a.Do = append(a.Do, s)
	}
}

// again says how a name that is allowed opens.
func (in *inquiry) again(n fqdn.Name) {
	if in.audited() || in.f.Unresolved {
		return
	}
	in.do("let the pod ask for %s again: a program that keeps addresses for longer than they hold has to resolve anew", n)
}

// short answers for a name that is allowed on other ports.
func (in *inquiry) short(n fqdn.Name, short []*policy.Match) {
	in.settle(Denied, "%s covers %s on %s, and not%s", in.quoted(short[0]), n, ports(short), in.to.onPort())
	or := ""
	if !in.hidden(short[0].Rule) {
		or = fmt.Sprintf("or add the port to the rule of %s (%s)", short[0].Policy, short[0].Rule.Path)
	}
	in.write(or, n)
}

// auditOnly answers for a name that only an Audit policy covers.
func (in *inquiry) auditOnly(n fqdn.Name, m *policy.Match) {
	in.settle(Denied, "only the Audit policy %s covers %s, which opens nothing", m.Policy, n)
	in.write(fmt.Sprintf("or set `enforcement: Enforce` in %s, if all that it lists is to be open", m.Policy), n)
}

// blocked answers for a name whose addresses the guard keeps closed.
func (in *inquiry) blocked(n fqdn.Name, m *policy.Match, blocked []Seen) {
	in.settle(Denied, "%s covers %s, but the guard against rebinding takes %s out of its answers: %s", in.quoted(m), n, blocked[0].Address, blocked[0].Blocked)
	var never []string
	for _, s := range blocked {
		if neverOpen(s.Blocked) {
			never = append(never, s.Address)
			continue
		}
		if a, err := netip.ParseAddr(s.Address); err == nil {
			in.advice().Corefile = append(in.advice().Corefile, fmt.Sprintf("rebind allow %s %s", n, netip.PrefixFrom(a, a.BitLen())))
		}
	}
	switch {
	case len(in.advice().Corefile) > 0:
		in.do("if %s is meant to lead into the cluster, the administrator of the nodes writes the Corefile's line below; no policy can", n)
	case len(never) > 0:
		in.do("%s can never be opened for a name: it is no other host's address", strings.Join(never, ", "))
	}
}

// neverOpen tells whether no line of the Corefile opens what the guard's reason is
// about: these are no host's addresses.
func neverOpen(reason string) bool {
	word, _, _ := strings.Cut(reason, " ")
	return slices.Contains([]string{"loopback", "unspecified", "multicast", "reserved"}, word)
}

// elsewhere names policies of the namespace that would allow the name and do not
// select the pod.
func (in *inquiry) elsewhere(n fqdn.Name) {
	for _, p := range in.f.Policies {
		if v := in.f.View; (v == nil || !slices.Contains(v.Policies, p.Namespace+"/"+p.Name)) && covers(p, n) {
			in.notOfPod(p, n)
		}
	}
}

// notOfPod says why a policy that covers the name says nothing of the pod.
func (in *inquiry) notOfPod(p *v1alpha1.FQDNNetworkPolicy, n fqdn.Name) {
	sel, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	switch {
	case err != nil: // that is a problem of its own
	case sel.Matches(labels.Set(in.f.Pod.Labels)):
		in.note("%s/%s covers %s and selects the pod, but is not in force for it yet", p.Namespace, p.Name, n)
	default:
		in.note("%s/%s covers %s and does not select the pod: its podSelector is %s", p.Namespace, p.Name, n, selectorText(&p.Spec.PodSelector))
	}
}

// covers tells whether a match of the policy covers the name.
func covers(p *v1alpha1.FQDNNetworkPolicy, n fqdn.Name) bool {
	return slices.ContainsFunc(fqdnnp.Read(p).Rules, func(r ordered.Rule) bool {
		return slices.ContainsFunc(r.Matches, func(m *policy.Match) bool { return m.Pattern.Matches(n) })
	})
}

func selectorText(s *metav1.LabelSelector) string {
	if text := metav1.FormatLabelSelector(s); text != "<none>" && text != "" {
		return text
	}
	return "{}"
}

// write writes the manifest that allows names on the ports that are asked for. or is
// what can be done instead, "" for nothing.
func (in *inquiry) write(or string, names ...fqdn.Name) {
	rule := suggest.Rule{Ports: in.ports()}
	for _, n := range names {
		text := n.String()
		if _, err := fqdn.ParseExact(text); err != nil {
			in.do("%s cannot be written in a policy: %v", text, err)
			continue
		}
		rule.Names = append(rule.Names, text)
	}
	if more := len(rule.Names) - fqdnnp.MaxMatches; more > 0 {
		rule.Names = rule.Names[:fqdnnp.MaxMatches]
		in.do("the manifest has %d names, which is what a rule may hold, and leaves out %d; ask for the one that is meant", fqdnnp.MaxMatches, more)
	}
	selector, why := in.selector()
	if len(rule.Names) == 0 || selector == nil {
		if why != "" {
			in.do("%s", why)
		}
		return
	}
	name := free(rule.Names[0], func(name string) bool { return in.policy(in.f.Pod.Namespace+"/"+name) != nil })
	p := suggest.Policy(in.f.Pod.Namespace, name, nil, []suggest.Rule{rule})
	p.Spec.PodSelector = *selector
	if in.audited() {
		p.Spec.Enforcement = v1alpha1.EnforcementAudit
	}
	text, err := suggest.YAML(&p)
	if err != nil {
		in.do("no manifest could be written: %v", err)
		return
	}
	in.advice().Manifest = string(text)
	in.do("apply the manifest below: policies add up, so nothing else changes for the pod")
	if why != "" {
		in.do("%s", why)
	}
	if or != "" {
		in.do("%s", or)
	}
}

// ports returns what the manifest opens: what is asked for, else what was denied,
// else the one that is likely meant.
func (in *inquiry) ports() (out []v1alpha1.Port) {
	if in.to.portless() {
		in.do("only a rule without ports lets ICMP pass, so the manifest opens every protocol and port")
		return nil
	}
	wanted := in.wanted()
	if len(wanted) == 0 {
		p := cmp.Or(in.to.Protocol, policy.TCP)
		wanted = []policy.PortRange{{Protocol: p, First: likelyPort, Last: likelyPort}}
		in.do("the manifest opens %s/%d since no port was asked for; write the one that is meant", p, likelyPort)
	}
	for _, r := range wanted {
		out = append(out, suggest.Ports(policy.NewPortSet(r))...)
	}
	return out
}

// wanted returns the port that is asked for, else those of what was denied.
func (in *inquiry) wanted() (out []policy.PortRange) {
	if at := in.to.Port; at != 0 {
		return []policy.PortRange{{Protocol: in.to.Protocol, First: at, Last: at}}
	}
	for i := range in.f.Flows {
		f := &in.f.Flows[i]
		at := policy.PortRange{Protocol: f.Protocol, First: f.Dialled.Port(), Last: f.Dialled.Port()}
		if in.concerns(f) && at.First != 0 && ruled(f.Protocol) && !slices.Contains(out, at) && len(out) < fqdnnp.MaxPorts {
			out = append(out, at)
		}
	}
	return out
}

// likelyPort is the port of a manifest if the question has none: HTTPS.
const likelyPort = 443

// ruled tells whether a rule can name the protocol.
func ruled(p policy.Protocol) bool { return p == policy.TCP || p == policy.UDP || p == policy.SCTP }

// selector returns whom the manifest selects: the pods of this one's workload, or,
// where these have no labels of their own or others have them too that nothing
// denies to yet, whom a policy of the pod selects already. why is what has to be
// said of it; without a selector it is what to do first.
func (in *inquiry) selector() (s *metav1.LabelSelector, why string) {
	own := workloadOf(&in.f.Pod)
	if len(own) > 0 && (len(in.f.Free) == 0 || in.audited()) {
		return &metav1.LabelSelector{MatchLabels: own}, ""
	}
	for _, id := range in.f.View.Policies {
		p := in.policy(id)
		if p == nil || !in.audited() && p.Spec.Enforcement == v1alpha1.EnforcementAudit {
			continue
		}
		if sel, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector); err != nil || !sel.Matches(labels.Set(in.f.Pod.Labels)) {
			continue
		}
		why = fmt.Sprintf("its podSelector is that of %s: the pod's labels identify no workload", id)
		if len(own) > 0 {
			why = fmt.Sprintf("its podSelector is that of %s: the pod's labels are also those of %s, which nothing is denied to so far", id, in.f.Free[0])
		}
		return p.Spec.PodSelector.DeepCopy(), why
	}
	return nil, "give the pods of this workload a label of their own, and ask again: without one a policy cannot select them alone"
}

// workloadOf returns the labels that the pods of the pod's workload share.
func workloadOf(p *policy.Pod) map[string]string {
	out := map[string]string{}
	for term := range strings.SplitSeq(p.Workload(), ",") {
		key, value, _ := strings.Cut(term, "=")
		if v, ok := p.Labels[key]; ok && v == value {
			out[key] = value
		}
	}
	return out
}

// free returns a name for a manifest that no object has: applying one that
// exists would replace it.
func free(host string, taken func(name string) bool) string {
	base := objectName(host)
	name := base
	for i := 2; taken(name); i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	return name
}

// objectName makes the name of an object of what it allows.
func objectName(host string) string {
	parts := []string{}
	for label := range strings.SplitSeq("allow-"+strings.ToLower(strings.ReplaceAll(host, "_", "-")), ".") {
		if label = strings.Trim(label, "-"); label != "" {
			parts = append(parts, label)
		}
	}
	base := strings.Join(parts, ".")
	const most = 200 // of 253, with room for a number
	if len(base) > most {
		base = strings.TrimRight(base[:most], "-.")
	}
	return base
}
