package explain

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// maxRules bounds the rules that are listed in order of one question.
const maxRules = 64

// InOrder returns the steps of an evaluation as they are asked, where rules of cluster
// policies are among those of the view; nil elsewhere. by is the rule that decides.
func InOrder(v *policy.View, steps []policy.Step, by *policy.Rule) (out []Rule) {
	if !v.Ordered() {
		return nil
	}
	for _, s := range steps {
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
			Tier: r.Tier.String(), Action: action.String(), Policy: r.Policy, Path: r.Path, To: to, Ports: string(s.Ports), Broken: r.Broken, OnPort: s.Asked, Decides: r == by, rule: r,
		})
	}
	return out
}

// order lists the rules that lead to an end in the order in which they are asked.
func (in *inquiry) order(e *end, steps []policy.Step, by *policy.Rule) {
	for _, r := range InOrder(in.f.View, steps, by) {
		if a := e.Reached.Addr(); a.IsValid() {
			r.Address = a.String()
		} else if k := r.rule.Peer.Kind; !r.rule.Broken && k != policy.PeerNames && k != policy.PeerAnywhere {
			continue // it may lead there
		}
		same := func(o Rule) bool { return o.rule == r.rule && o.Address == r.Address && o.Ports == r.Ports }
		if i := slices.IndexFunc(in.said.Rules, same); i >= 0 {
			in.said.Rules[i].OnPort, in.said.Rules[i].Decides = in.said.Rules[i].OnPort || r.OnPort, in.said.Rules[i].Decides || r.Decides
		} else if len(in.said.Rules) < maxRules {
			if in.hidden(r.rule) {
				r.Policy, r.Path, r.To = "", "", ""
			}
			in.said.Rules = append(in.said.Rules, r)
		}
	}
}

// hidden is the one place that says whose names an answer leaves out: those of cluster
// policies for callers without the right to read them.
func (in *inquiry) hidden(r *policy.Rule) bool {
	return !in.f.SeesCluster && r != nil && r.Tier != policy.Namespace
}

// ruleText names a rule of a cluster policy in a sentence.
func (in *inquiry) ruleText(r *policy.Rule) string {
	if in.hidden(r) {
		return "a cluster policy (" + r.Tier.String() + ")"
	}
	return r.Tier.String() + " policy " + r.Policy + " (" + r.Path + ")"
}

// overrules returns the rule of a cluster policy that denies what is asked for, also
// after an answer with the matches; nil for none.
func (in *inquiry) overrules(matches []*policy.Match, reached func() reach) *policy.Rule {
	if !in.f.View.Ordered() {
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
	in.settle(Denied, "%s denies %s%s", in.ruleText(by), what, why)
	if by.Tier == policy.Baseline {
		in.do("a policy of the namespace that selects the pod takes the place of the Baseline tier; write one that allows what the pod needs")
		return
	}
	in.do("no policy of a namespace changes that: ask who administers the cluster's policies")
}
