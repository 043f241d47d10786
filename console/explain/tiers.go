package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
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

// inOrder returns the steps of an evaluation as they are asked, where rules of cluster
// policies are among those of the view; nil elsewhere. by is the rule that decides, known as
// for asked.
func inOrder(v *policy.View, steps []policy.Step, by *policy.Rule, known bool) (out []Rule) {
	if !v.Ordered() && len(v.Rules.NamespaceDeny) == 0 {
		return nil
	}
	for _, s := range asked(steps, known) {
		r := s.Rule
		to := peerText(r.Peer)
		if r.Peer.Kind == policy.PeerNames {
			to = "names"
		}
		action := r.Action
		if r.Broken {
			action = policy.Deny
		}
		out = append(out, Rule{
			Tier: r.Tier.String(), Action: action.String(), Policy: r.Policy, Path: r.Path, Name: r.Name, To: to, Ports: string(s.Ports), Broken: r.Broken, Closed: r.Closed, OnPort: s.Asked, Decides: r == by, rule: r,
		})
	}
	return out
}

// order lists the rules that lead to an end in the order in which they are asked.
func (in *inquiry) order(e *end, steps []policy.Step, by *policy.Rule) {
	for _, r := range inOrder(in.f.View, steps, by, e.Reached.Addr().IsValid()) {
		if a := in.shown(e).Addr(); a.IsValid() {
			r.Address = a.String()
		} else if k := r.rule.Peer.Kind; !r.rule.Broken && k != policy.PeerNames && k != policy.PeerAnywhere && !in.f.Unresolved {
			continue // it may lead there
		}
		same := func(o Rule) bool { return o.rule == r.rule && o.Address == r.Address && o.Ports == r.Ports }
		if i := slices.IndexFunc(in.said.Rules, same); i >= 0 {
			in.said.Rules[i].OnPort, in.said.Rules[i].Decides = in.said.Rules[i].OnPort || r.OnPort, in.said.Rules[i].Decides || r.Decides
		} else if len(in.said.Rules) < maxRules {
			if in.hidden(r.rule) {
				r.Policy, r.Path, r.Name, r.To = "", "", "", ""
			}
			in.said.Rules = append(in.said.Rules, r)
		}
	}
}

// hidden is the one place that says whose names an answer leaves out: those of cluster
// policies for callers without the right to read them.
func (in *inquiry) hidden(r *policy.Rule) bool {
	return r != nil && r.Tier != policy.Namespace && !in.seesCluster(r.Standard)
}

func (in *inquiry) seesCluster(standard bool) bool {
	return in.f.SeesCluster != nil && in.f.SeesCluster(standard)
}

// Hidden names a cluster policy of a tier to callers without the right to read it.
func Hidden(tier string) string {
	if tier == "" {
		return "a cluster policy"
	}
	return "a cluster policy (" + tier + ")"
}

// ruleText names a rule of a cluster policy in a sentence.
func (in *inquiry) ruleText(r *policy.Rule) string {
	if in.hidden(r) {
		return Hidden(r.Tier.String())
	}
	return r.Tier.String() + " policy " + r.Policy + " (" + pathText(r.Path, r.Name) + ")" + in.place(r, r.Path)
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
func By(by string, v *policy.View, sees func(standard bool) bool) string {
	var out []string
	for part := range strings.SplitSeq(by, ",") {
		id, _, _ := strings.Cut(part, " ")
		if id != "" && policy.OfCluster(id) && !sees(cnp.IsID(id)) {
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

// clusterPolicies lists the cluster policies that select the pod, those that may not be read
// once for each tier.
func (in *inquiry) clusterPolicies() {
	if in.f.View == nil {
		return
	}
	for r := range in.f.View.Rules.Cluster() {
		p := ClusterPolicy{Policy: r.Policy, Tier: r.Tier.String(), Enforcement: string(v1alpha1.EnforcementEnforce)}
		if r.Audit {
			p.Enforcement = string(v1alpha1.EnforcementAudit)
		}
		if in.hidden(r) {
			p.Policy = ""
		}
		if !slices.Contains(in.said.ClusterPolicies, p) {
			in.said.ClusterPolicies = append(in.said.ClusterPolicies, p)
		}
	}
}

// overrules returns the rule that denies what is asked for, also
// after an answer with the matches; nil for none.
func (in *inquiry) overrules(matches []*policy.Match, reached func() reach) *policy.Rule {
	if v := in.f.View; !v.Ordered() && len(v.Rules.NamespaceDeny) == 0 {
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
	if by.Tier == policy.Baseline {
		in.do("a policy of the namespace that selects the pod takes the place of the Baseline tier; write one that allows what the pod needs")
		return
	}
	in.do("no policy of a namespace changes that: ask who administers the cluster's policies")
}
