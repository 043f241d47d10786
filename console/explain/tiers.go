package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
)

// maxRules bounds the rules that are listed in order of one question.
const maxRules = 64

// asked returns the steps without those that a Pass rule of their tier keeps from being asked.
// known tells whether the address that is reached is known: else rules with peers may match.
func asked(steps []policy.Step, known bool) (out []policy.Step) {
	passed, tier := policy.PortSet(""), policy.Admin
	for _, s := range steps {
		r := s.Rule
		if r.Tier != tier {
			passed, tier = "", r.Tier
		}
		both := policy.NewPortSet(append(passed.Ranges(), s.Ports.Ranges()...)...)
		if both == passed {
			continue
		}
		if kind := r.Peer.Kind; r.Action == policy.Pass && !r.Broken && (known || kind == policy.PeerNames || kind == policy.PeerAnywhere) {
			passed = both
		}
		out = append(out, s)
	}
	return out
}

// ordered tells whether rules of the view are asked in an order.
func (in *inquiry) ordered() bool {
	return in.f.View.Ordered() || in.ofNode() || len(in.f.View.Rules.NamespaceDeny) > 0
}

// order lists the rules that lead to an end in the order in which they are asked. by is the rule
// that decides.
func (in *inquiry) order(e listed, steps []policy.Step, by *policy.Rule) {
	at := e.addr
	for _, s := range asked(steps, e.known) {
		r := s.Rule
		row := Rule{
			Tier: r.Tier.String(), Action: r.Action.String(), Policy: r.Policy, Path: r.Path, Name: r.Name, To: peerText(r.Peer), Ports: string(s.Ports), ServerName: ServerNameOf(r.ServerName), Broken: r.Broken, Closed: r.Closed, OnPort: s.Asked, Decides: r == by, rule: r,
		}
		if in.ofNode() {
			row.Traffic = r.Traffic.String()
			if r.Interfaces != nil || !in.f.Unresolved {
				row.Interfaces = r.On(in.f.View.Node)
			}
		}
		kind := r.Peer.Kind
		if r.Broken {
			row.Action = policy.Deny.String()
		}
		if kind == policy.PeerNames {
			row.To = "names"
		}
		if r.Ingress {
			row.To, row.From = "", row.To
		}
		if at.IsValid() {
			row.Address = at.String()
		} else if !r.Broken && kind != policy.PeerNames && kind != policy.PeerAnywhere && !in.f.Unresolved {
			continue // it may lead there
		}
		same := func(o Rule) bool { return o.rule == r && o.Address == row.Address && o.Ports == row.Ports }
		if i := slices.IndexFunc(in.said.Rules, same); i >= 0 {
			in.said.Rules[i].OnPort, in.said.Rules[i].Decides = in.said.Rules[i].OnPort || row.OnPort, in.said.Rules[i].Decides || row.Decides
		} else if len(in.said.Rules) < maxRules {
			if in.hidden(r) {
				row.Policy, row.Path, row.Name, row.To, row.From = "", "", "", "", ""
			}
			in.said.Rules = append(in.said.Rules, row)
		}
	}
}

// hidden is the one place that says whose names an answer leaves out: those of cluster
// policies for callers without the right to read them.
func (in *inquiry) hidden(r *policy.Rule) bool {
	return r != nil && r.Tier != policy.Namespace && !in.seesCluster(r.Policy)
}

func (in *inquiry) seesCluster(id string) bool {
	return in.f.SeesCluster != nil && in.f.SeesCluster(id)
}

// Hidden names a cluster policy of a tier to callers without the right to read it.
func Hidden(tier string) string {
	if tier == "" {
		return "a cluster policy"
	}
	return "a cluster policy (" + tier + ")"
}

// PolicyName names a cluster policy of a tier in a sentence. Policies for nodes have none.
func PolicyName(tier, id string) string {
	if name, ofNodes := nnp.Name(id); ofNodes {
		return v1alpha1.NodeKind + " " + name
	}
	return tier + " policy " + id
}

// ruleText names a rule of a cluster policy in a sentence.
func (in *inquiry) ruleText(r *policy.Rule) string {
	if _, ofNodes := nnp.Name(r.Policy); ofNodes && in.hidden(r) {
		return "a policy for nodes"
	}
	if in.hidden(r) {
		return Hidden(r.Tier.String())
	}
	return PolicyName(r.Tier.String(), r.Policy) + " (" + pathText(r.Path, r.Name) + ")" + in.place(r, r.Path)
}

// pathText writes where in its policy a rule is, with its name.
func pathText(path, name string) string {
	if name == "" {
		return path
	}
	return fmt.Sprintf("%s, %q", path, name)
}

// By returns the matches of a grant without those of the cluster policies that the caller
// may not read. The view tells their tier; nil: none does.
func By(by string, v *policy.View, sees func(id string) bool) string {
	var out []string
	for part := range strings.SplitSeq(by, ",") {
		id, _, _ := strings.Cut(part, " ")
		if id != "" && policy.OfCluster(id) && !sees(id) {
			part = Hidden(tierOf(id, v))
		}
		if !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return strings.Join(out, ",")
}

// tierOf returns the tier of a cluster policy of a view, "" if it is none of it.
func tierOf(id string, v *policy.View) string {
	if v == nil {
		return ""
	}
	for r := range v.Rules.Cluster() {
		if r.Policy == id {
			return r.Tier.String()
		}
	}
	return ""
}

// overrules returns the rule that denies what is asked for, also
// after an answer with the matches; nil for none.
func (in *inquiry) overrules(matches []*policy.Match, reached func() reach) *policy.Rule {
	if !in.ordered() {
		return nil
	}
	in.supposed, in.said.Rules = matches, nil
	r := reached()
	in.supposed = nil
	return r.deniedBy
}

// overruled answers for what a rule of a cluster policy denies.
func (in *inquiry) overruled(what string, by *policy.Rule) {
	why := ""
	if by.Broken {
		why = ": a part of it cannot be read"
	}
	if by.Closed {
		why = ": the pod has no room for the addresses of its names, so that it is closed on the rule's ports"
	}
	in.settle(Denied, "%s denies %s%s", in.ruleText(by), what, why)
	if by.Tier == policy.Namespace {
		in.do("write encrypted: Accept under spec.dns of %s, and of the pod's other policies, if the pod may use encrypted DNS", by.Policy)
		return
	}
	if by.Tier == policy.Baseline && by.Ingress {
		in.do("a NetworkPolicy for ingress that selects the pod takes the place of the Baseline tier; write one that allows what has to reach the pod")
		return
	}
	if by.Tier == policy.Baseline {
		in.do("a policy of the namespace that selects the pod takes the place of the Baseline tier; write one that allows what the pod needs")
		return
	}
	in.do("no policy of a namespace changes that: ask who administers the cluster's policies")
}
