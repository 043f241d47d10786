package webtest

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// source is the console's Source of a node.
type source struct{ node *Node }

func locked[T any](s *source, get func(*Node) T) T {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return get(s.node)
}

func (s *source) Node() string { return s.node.name }
func (s *source) Status() console.Status {
	return locked(s, func(n *Node) console.Status { return n.status })
}
func (s *source) Snapshot() *policy.Snapshot {
	return locked(s, func(n *Node) *policy.Snapshot { return n.snap })
}
func (s *source) Policies(namespace string) (out []v1alpha1.FQDNNetworkPolicy) {
	for _, p := range s.node.input.Policies {
		if namespace == "" || p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}
func (s *source) NetworkPolicies(string) []*networkingv1.NetworkPolicy { return nil }
func (s *source) Remote() ([]*policy.Pod, []string, string)            { return nil, nil, "" }
func (s *source) Services() map[netip.Addr]*policy.Service             { return nil }
func (s *source) CountsByName(netip.Addr) bool                         { return true }
func (s *source) Problems() []policy.Problem                           { return s.Snapshot().Problems }
func (s *source) Failing() string                                      { return "" }
func (s *source) Trouble() map[policy.PodRef][]string                  { return nil }
func (s *source) Grants(p policy.PodRef) []policy.GrantInfo {
	return locked(s, func(n *Node) (out []policy.GrantInfo) {
		for _, g := range n.grants {
			if g.Pod == p {
				out = append(out, g)
			}
		}
		return out
	})
}
func (s *source) Ended(policy.PodRef, netip.Addr) []policy.GrantInfo             { return nil }
func (s *source) Denied(policy.PodRef) []audit.Flow                              { return nil }
func (s *source) Seen(policy.PodRef, netip.Addr) []recent.Sighting               { return nil }
func (s *source) SeenByAnybody(netip.Addr) []recent.Sighting                     { return nil }
func (s *source) Asked(policy.PodRef, fqdn.Name) (d recent.Decision, known bool) { return d, false }
func (s *source) LedBy(policy.PodRef, fqdn.Name) (via, aliases []fqdn.Name)      { return nil, nil }
func (s *source) DeniesResolver(policy.PodRef, netip.Addr) (bool, *policy.Rule)  { return false, nil }
func (s *source) Guard() func(fqdn.Name, netip.Addr) string {
	return func(fqdn.Name, netip.Addr) string { return "" }
}
func (s *source) Inside(netip.Addr) string { return "" }
func (s *source) Domain() fqdn.Name {
	n, _ := fqdn.ParseName("cluster.local") // is a name
	return n
}
func (s *source) Resolvers() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.96.0.10")} }
func (s *source) Recent() []byte {
	return locked(s, func(n *Node) []byte { return bytes.Clone(n.recent) })
}
func (s *source) Complete(string) (time.Duration, bool) { return 0, false }
func (s *source) Follow() console.Follower {
	f := &follower{node: s.node, wake: make(chan struct{}, 1)}
	return locked(s, func(n *Node) console.Follower {
		n.followers[f] = true
		n.streams++
		return f
	})
}

// follower yields lines as they are logged.
type follower struct {
	node *Node
	wake chan struct{}
	// Under the lock of node:
	lines  []byte
	lost   uint64
	ended  bool
	closed bool
}

// add takes lines; the caller holds the lock.
func (f *follower) add(lines []byte, lost uint64) {
	f.lines, f.lost = append(f.lines, lines...), f.lost+lost
	f.rouse()
}

func (f *follower) end() {
	f.ended = true
	f.rouse()
}

func (f *follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next waits for lines.
func (f *follower) Next(ctx context.Context) (lines []byte, lost uint64, err error) {
	for {
		f.node.mu.Lock()
		lines, lost, f.lines, f.lost = f.lines, f.lost, nil, 0
		ended := f.ended
		f.node.mu.Unlock()
		switch {
		case len(lines) > 0 || lost > 0:
			return lines, lost, nil
		case ended:
			return nil, 0, io.EOF
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Close ends the following.
func (f *follower) Close() {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if delete(f.node.followers, f); !f.closed {
		f.closed = true
		f.node.streams--
	}
	f.end()
}
