package agent

import (
	"fmt"
	"strings"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/status"
)

// findings returns findings about resolvers that lead back to themselves, and about queries that
// cannot be led to the agent.
func (h *hostDNS) findings(snap *policy.Snapshot, unled []layout.Unled) (out []status.Finding) {
	v := snap.Node()
	if v == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.wanted {
		return nil
	}
	for _, r := range h.resolvers {
		if h.tested[r].loops {
			out = append(out, forPolicies(snap, status.Finding{Pod: v.Pod.PodRef, Reason: status.ResolverLoop,
				Message: fmt.Sprintf("queries that the agent sends to %s, a resolver of the host, come back from a program of this node to the same address: it forwards them in a loop. "+
					"The node's own queries to it are not intercepted, and names that it answers open nothing; give the forwarder on the node another upstream", r)})...)
		}
	}
	var who []string
	for _, u := range unled {
		who = append(who, fmt.Sprintf("user %d by %s to %s", u.UID, u.Iface, u.Resolver))
	}
	if len(who) > 0 {
		out = append(out, forPolicies(snap, status.Finding{Pod: v.Pod.PodRef, Reason: status.SocketBound,
			Message: fmt.Sprintf("programs of this node query resolvers from sockets that are bound to an interface or belong to a VRF (%s): the kernel does not lead such queries to the agent. "+
				"Over UDP they go to the resolver, and their names open nothing; over TCP they fail. Do not bind these programs to an interface, or allow their destinations by address", strings.Join(who[:min(len(who), 8)], ", "))})...)
	}
	return out
}
