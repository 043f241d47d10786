package status

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// askAfter is how old a Lease must be before its Node is asked for: one renewal
// was missed. Other Leases' Nodes are there.
const askAfter = renewEvery + renewEvery/2

// leaseReader gathers what all nodes say in their Leases. It is for one goroutine, and
// lasts for one term.
type leaseReader struct {
	client    kubernetes.Interface
	namespace string
	log       *slog.Logger
	seen      map[string]*seenLease // by the Lease's name
}

// seenLease is the content of a Lease and its time by this agent's clock: the clocks of
// two nodes may differ.
type seenLease struct {
	version string
	at      time.Time
	renewed metav1.MicroTime
	digest  digest
	node    string
	gone    bool // it counts no more
}

// gather returns the entries of each policy, by "namespace/name", and removes the
// Leases that count no more.
func (s *leaseReader) gather(ctx context.Context, now time.Time, leases []*coordinationv1.Lease) map[string][]entry {
	byPolicy := map[string][]entry{}
	there := make(map[string]bool, len(leases))
	for _, l := range leases {
		there[l.Name] = true
		seen := s.read(now, l)
		if !seen.gone && (now.Sub(seen.at) >= staleAfter || now.Sub(seen.at) >= askAfter && s.nodeGone(ctx, l)) {
			seen.gone = true
		}
		if seen.gone {
			s.remove(ctx, l)
			continue
		}
		for _, e := range seen.digest.Findings {
			e.Node = seen.node
			byPolicy[e.Policy] = append(byPolicy[e.Policy], e)
		}
	}
	for name := range s.seen {
		if !there[name] {
			delete(s.seen, name)
		}
	}
	return byPolicy
}

// read stores the content of a Lease.
func (s *leaseReader) read(now time.Time, l *coordinationv1.Lease) *seenLease {
	seen := s.seen[l.Name]
	if seen != nil && seen.version == l.ResourceVersion && l.ResourceVersion != "" {
		return seen
	}
	var renewed metav1.MicroTime
	if l.Spec.RenewTime != nil {
		renewed = *l.Spec.RenewTime
	}
	next := &seenLease{version: l.ResourceVersion, at: now, renewed: renewed, node: l.Annotations[NodeAnnotation]}
	if seen != nil && seen.renewed.Equal(&renewed) {
		next.at = seen.at // somebody changed it, but not its node
	}
	var err error
	if next.digest, err = decodeDigest(l.Annotations[FindingsAnnotation]); err != nil {
		s.log.Warn("a node's findings are left out", "lease", l.Name, "error", err)
	}
	if next.digest.More > 0 {
		s.log.Warn("a node has more findings than it can tell", "lease", l.Name, "left out", next.digest.More)
	}
	s.seen[l.Name] = next
	return next
}

func (s *leaseReader) nodeGone(ctx context.Context, l *coordinationv1.Lease) bool {
	node := l.Annotations[NodeAnnotation]
	if node == "" {
		return false
	}
	_, err := s.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// remove deletes a Lease unless its node has just renewed it.
func (s *leaseReader) remove(ctx context.Context, l *coordinationv1.Lease) {
	err := s.client.CoordinationV1().Leases(s.namespace).Delete(ctx, l.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
	})
	switch {
	case err == nil:
		s.log.Info("the Lease of a node without an agent is removed", "lease", l.Name)
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil:
		s.log.Warn("the Lease of a node without an agent stays; trying again", "lease", l.Name, "error", err)
	}
}
