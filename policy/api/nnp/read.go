package nnp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
)

const idPrefix = "nodenetworkpolicy:"

// MaxInterfaces bounds the interfaces of a policy, as its schema does.
const MaxInterfaces = 16

// ID returns the name of a policy among those of all kinds.
func ID(name string) string { return idPrefix + name }

// Name returns the name of a policy by its ID, and whether an id among those of all kinds is of this one.
func Name(id string) (name string, is bool) { return strings.CutPrefix(id, idPrefix) }

// Object returns the name by which problems name a policy.
func Object(name string) string { return "nodenetworkpolicy " + name }

// Validate returns what in a policy cannot work as it is written, as cfqdnnp.Validate does.
func Validate(p *v1alpha1.NodeNetworkPolicy) []policy.Problem { return Read(p).Problems }

// NotEnabled returns the problems of a policy where the agents do not enforce policies for nodes.
func NotEnabled(p *v1alpha1.NodeNetworkPolicy) []policy.Problem {
	r := Read(p)
	r.Problems = policy.AddProblem(nil, r.Object, policy.ReasonNotEnabled, "", "the agents do not enforce policies for nodes; install the chart with nodes.enabled=true")
	r.Invalidate()
	return r.Problems
}

// Read reads a policy. One whose nodes, place, traffic or interfaces cannot be read selects nothing.
func Read(p *v1alpha1.NodeNetworkPolicy) *ordered.Policy {
	r := &ordered.Policy{ID: ID(p.Name), Object: Object(p.Name), Tier: policy.Admin}
	spec := &p.Spec
	if spec.Unreadable != "" {
		r.Invalid("spec", "the policy cannot be read by this version: %s", spec.Unreadable)
	}
	r.Nodes = r.ReadSelector("spec.nodeSelector", spec.NodeSelector)
	r.ReadPriority(spec.Priority)
	readTraffic(r, spec)
	readInterfaces(r, spec.Interfaces)
	r.ReadSettings(spec.Enforcement, spec.Denied, &spec.DNS, &spec.TTL)
	if _, err := ConfirmWithin(spec); err != nil {
		r.Partly("spec.safeguard.confirmWithin", "%v", err)
	}
	switch {
	case r.Limits.NoEncrypted && r.Traffic != policy.Local:
		r.Partly("spec.dns.encrypted", "it counts with traffic: Local alone, and has no effect here; write rules for port 853, or leave it out")
	case r.Limits.NoEncrypted:
		r.AddEncrypted()
	}
	r.ReadRules(policy.Rule{Path: "spec.egress", Action: policy.Deny}, len(spec.Egress), func(path string, i int) {
		from := &spec.Egress[i]
		rule := begin(r, policy.Rule{Path: path}, from.Action)
		rule.ReadCommon(from.Name, from.Unreadable, from.Ports)
		rule.ReadMatches(from.Matches)
		if len(from.Matches) > 0 && r.Traffic != policy.Local {
			rule.Fail(path+".matches", "names count with traffic: Local alone; write networks, or traffic: Local")
		}
		end(rule, &from.NodePeers, len(from.Matches))
	})
	r.ReadRules(policy.Rule{Path: "spec.ingress", Action: policy.Deny, Ingress: true}, len(spec.Ingress), func(path string, i int) {
		from := &spec.Ingress[i]
		rule := begin(r, policy.Rule{Path: path, Ingress: true}, from.Action)
		rule.ReadCommon(from.Name, from.Unreadable, from.Ports)
		end(rule, &from.NodePeers, 0)
	})
	r.Invalidate()
	return r
}

// readTraffic reads what the policy decides.
func readTraffic(r *ordered.Policy, spec *v1alpha1.NodeNetworkPolicySpec) {
	kinds := []v1alpha1.Traffic{v1alpha1.TrafficLocal, v1alpha1.TrafficForwarded, v1alpha1.TrafficBeforeNAT, v1alpha1.TrafficUntracked}
	switch i := slices.Index(kinds, spec.Traffic); {
	case i >= 0:
		r.Traffic = policy.Traffic(i)
	case spec.Traffic != "":
		r.Invalid("spec.traffic", "%q is unknown; write Local, Forwarded, BeforeNAT or Untracked", spec.Traffic)
	}
	if r.Traffic == policy.BeforeNAT && len(spec.Egress) > 0 {
		r.Invalid("spec.egress", "traffic: BeforeNAT is what arrives at the node; write ingress rules, or another traffic")
	}
}

// interfaceName is the pattern of the schema.
var interfaceName = regexp.MustCompile(`^([0-9A-Za-z_.@+-]{1,15}|[0-9A-Za-z_.@+-]{0,14}[*])$`)

func readInterfaces(r *ordered.Policy, names []v1alpha1.Interface) {
	if len(names) > MaxInterfaces {
		r.Invalid("spec.interfaces", "%d interfaces; write at most %d, or a beginning with an asterisk for several", len(names), MaxInterfaces)
		return
	}
	for i, name := range names {
		if !interfaceName.MatchString(string(name)) {
			r.Invalid(fmt.Sprintf("spec.interfaces[%d]", i), "%q; write the name of an interface, at most 15 characters, or its beginning with one asterisk: eth0, eth*, *", name)
		}
		r.Interfaces = append(r.Interfaces, string(name))
	}
	slices.Sort(r.Interfaces)
	r.Interfaces = slices.Compact(r.Interfaces)
}

// begin returns the reader of a rule. An action that does not exist counts as Deny.
func begin(r *ordered.Policy, rule policy.Rule, action v1alpha1.NodeAction) *ordered.RuleReader {
	reader := &ordered.RuleReader{Policy: r, Rule: rule}
	if action != v1alpha1.NodeAccept {
		reader.Action = policy.Deny
	}
	if action != v1alpha1.NodeAccept && action != v1alpha1.NodeDeny {
		reader.Fail(rule.Path+".action", "%q is no action; write Accept or Deny", action)
	}
	return reader
}

// end reads the peers of a rule, which has some names beside them, and adds the rule.
func end(r *ordered.RuleReader, from *v1alpha1.NodePeers, names int) {
	r.ReadNetworks(from.Networks)
	r.ReadNodes(from.Nodes)
	r.ReadPods(from.Pods)
	if from.Pods != nil && r.Policy.Traffic == policy.Untracked {
		r.Fail(r.Path+".pods", "traffic: Untracked is not judged between the node and pods; write networks or nodes")
	}
	r.Done(names+len(from.Networks) == 0 && from.Nodes == nil && from.Pods == nil)
}
