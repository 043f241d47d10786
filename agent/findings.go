package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/status"
)

// findings gathers the selected pods of this node for which policies do not hold, wholly
// or in part.
func (a *agent) findings() []status.Finding { return a.findingsOf(a.rollout.Status()) }

// findingsOf is findings at one moment of the roll-outs.
func (a *agent) findingsOf(r rollout.Status) []status.Finding {
	snap := r.InForce
	out := ofProblems(r.Problems)
	out = append(out, ofPaths(snap, a.selfTest.failed())...)
	if links, err := a.kernel.Links.Indexes(); err == nil && slices.ContainsFunc(ipvsLinks, func(l string) bool { return links[l] != 0 }) {
		out = append(out, ofIPVS(snap)...)
	}
	out = append(out, besideNetworkPolicies(snap)...)
	out = append(out, a.relay.findings(snap)...)
	if snap.Node() != nil {
		unled, err := a.kernel.tables().Unled(context.Background())
		if err != nil {
			a.log.Warn("cannot list the programs whose queries are not led to the agent", "error", err)
		}
		out = append(out, a.network.host.findings(snap, unled)...)
	}
	return append(out, ofStatus(snap, a.enforce.Status())...)
}

// besideNetworkPolicies returns a finding for every pod whose egress NetworkPolicies limit, for each cluster
// policy that accepts connections of it: another engine that enforces the NetworkPolicies may deny them. There is none
// where Namegate enforces all of them.
func besideNetworkPolicies(snap *policy.Snapshot) (out []status.Finding) {
	if snap == nil {
		return nil
	}
	for _, v := range snap.Views {
		if v.Standalone || len(v.NetworkPolicies) == 0 || slices.ContainsFunc(v.PeerRules(), opensAll) {
			continue
		}
		var accepting []string
		admin, _, _, _ := v.OrderedRules()
		for _, r := range admin {
			if r.Action == policy.Accept && !r.Broken {
				accepting = append(accepting, r.Policy)
			}
		}
		for _, id := range slices.Compact(accepting) {
			out = append(out, status.Finding{Policy: id, Pod: v.Pod.PodRef, Reason: status.ReasonBesideNetworkPolicies,
				Message: fmt.Sprintf("the NetworkPolicy %s limits the pod %s: another engine that enforces it denies what it does not allow, also if this policy accepts it; "+
					"%s prints the NetworkPolicy to apply", v.NetworkPolicies[0], v.Pod.PodRef, explainCommand(v.Pod.PodRef))})
		}
	}
	return out
}

// opensAll tells whether a rule of a NetworkPolicy allows every connection.
func opensAll(r *policy.Rule) bool {
	return r.Peer.Kind == policy.PeerAnywhere && r.Ports == policy.AnyPort && r.Action == policy.Accept
}

// explainCommand prints how a pod reaches a name, and the NetworkPolicy that another engine needs for it.
func explainCommand(pod policy.PodRef) string {
	return fmt.Sprintf("kubectl namegate explain %s NAME", pod)
}

// ipvsLinks are the interfaces that kube-proxy makes for its IPVS mode, and kube-router
// for its service proxy.
var ipvsLinks = []string{"kube-ipvs0", "kube-dummy-if"}

// ofIPVS returns a finding for every selected pod on a node with IPVS.
func ofIPVS(snap *policy.Snapshot) (out []status.Finding) {
	if snap == nil {
		return nil
	}
	for _, v := range snap.Views {
		out = append(out, forPolicies(snap, status.Finding{Pod: v.Pod.PodRef, Reason: status.IPVS,
			Message: "IPVS runs on the node, by kube-proxy or kube-router, and takes connections to Services past the verdict: run kube-proxy in iptables or nftables mode"})...)
	}
	return out
}

// ofProblems returns the compiler's problems of pods and of the node as findings.
func ofProblems(problems []policy.Problem) (out []status.Finding) {
	reasons := map[string]string{policy.ReasonHostNetwork: status.HostNetwork, policy.ReasonSecondInterface: status.SecondInterface,
		policy.ReasonTurnedToAudit: status.TurnedToAudit, policy.ReasonFailsafesUnknown: status.FailsafesUnknown,
		policy.ReasonInterfacesUnknown: status.InterfacesUnknown}
	for _, p := range problems {
		if reason := reasons[p.Reason]; reason != "" {
			out = append(out, each(p.Policies, status.Finding{Pod: p.Pod, Reason: reason, Message: p.Message})...)
		}
	}
	return out
}

// ofPaths returns findings of pods whose queries do not reach the agent.
func ofPaths(snap *policy.Snapshot, failed map[policy.PodRef]enforcer.Path) (out []status.Finding) {
	for ref, path := range failed {
		f := status.Finding{Pod: ref}
		switch path {
		case enforcer.PathBlocked:
			f.Reason = status.DNSBlocked
			f.Message = fmt.Sprintf("queries of the pod %s are dropped on their way to the agent, by another NetworkPolicy engine as it seems: its rules must "+
				"allow UDP and TCP 53 to the endpoint; %s prints the NetworkPolicy to apply", ref, explainCommand(ref))
		case enforcer.PathUnseen:
			f.Reason = status.NotSeen
			f.Message = fmt.Sprintf("netfilter does not see the traffic of the pod %s, so nothing is enforced for it: the network plugin leads it past netfilter "+
				"(eBPF routing, a bridge without br_netfilter); switch that off or use another plugin", ref)
		default:
			continue
		}
		out = append(out, forPolicies(snap, f)...)
	}
	return out
}

// ofStatus returns the enforcer's findings about pods, which it knows by their addresses.
func ofStatus(snap *policy.Snapshot, s stats.Enforcer) (out []status.Finding) {
	// A text has the address, its pod, and the device or table that by has for it.
	of := func(reason string, addrs []netip.Addr, by map[netip.Addr]string, text string) {
		for _, a := range slices.Concat(addrs, slices.SortedFunc(maps.Keys(by), netip.Addr.Compare)) {
			if ref, ok := snap.Pod(a); ok {
				out = append(out, forPolicies(snap, status.Finding{Pod: ref, Reason: reason, Message: fmt.Sprintf(text, a, ref, by[a])})...)
			}
		}
	}
	of(status.Homeless, s.Homeless, nil, "no interface of the node leads to %[1]s of the pod %[2]s, so its source is not checked")
	of(status.Homeless, s.HomeRefused, nil, "no bridge port of its own leads to %[1]s of the pod %[2]s, so nothing is accepted from it")
	of(status.BridgeNotFiltered, s.Unseen, nil, "netfilter does not see the bridge of the pod %[2]s: nothing is denied between its pods; load br_netfilter and set "+
		"net.bridge.bridge-nf-call-iptables=1 and bridge-nf-call-ip6tables=1 on the node")
	of(status.BridgeNotFiltered, nil, s.Switched, "a switch that netfilter does not see, such as Open vSwitch, connects the pod %[2]s: nothing is denied that stays in the switch, as to its other pods "+
		"and to Services that it translates; only packets that leave it by the interface %[3]s are judged, and their sources are not checked; use policies of that network plugin, or another plugin")
	of(status.SocketLB, s.Bypassing, nil, "queries of the pod %[2]s leave it for a pod of the resolver, not for the resolver's address, so they pass the agent by and names open nothing: "+
		"a load balancer of eBPF translates them, in the pod's sockets or on its interface; have pods ask the endpoint (kubelet's clusterDNS), which no Service is")
	of(status.Offloaded, nil, s.Offloading, "the flow table %[3]s has an interface of the pod %[2]s: it forwards packets of open connections past all rules. A connection that the policies do not allow any more is removed from it; "+
		"Linux before 6.4 may go on to forward UDP until it pauses for 30 s. Leave the pods' interfaces out of the flow table to have each packet pass the rules")
	of(status.DNSBlocked, s.DroppedTCP, nil, "connections of the pod %[2]s for DNS over TCP were dropped: it, or all pods together, opened more than the node leads to the agent (50 a second for a pod); "+
		"let its resolver keep connections open, or ask over UDP")
	return out
}

// forPolicies repeats a finding for each policy that selects its pod. One of a pod that only NetworkPolicies select,
// which have no conditions, has no policy.
func forPolicies(snap *policy.Snapshot, f status.Finding) (out []status.Finding) {
	v := snap.ViewOf(f.Pod)
	if v == nil {
		return nil
	}
	return each(slices.Concat(v.Policies, v.ClusterPolicies()), f)
}

// each repeats a finding for each of its policies. One without any is of no policy.
func each(ids []string, f status.Finding) (out []status.Finding) {
	if len(ids) == 0 {
		ids = []string{""}
	}
	for _, id := range ids {
		f.Policy = id
		out = append(out, f)
	}
	return out
}
