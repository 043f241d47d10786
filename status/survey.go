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

// survey gathers the findings of all nodes. It is for one goroutine, and lasts for
// one term.
type survey struct {
	client    kubernetes.Interface
	namespace string
	log       *slog.Logger
	identity  string               // of this agent
	seen      map[string]*sighting // by the Lease's name
	begun     bool                 // it has gathered once
	// bootOf tells in which boot a node is, "" where it is not known.
	bootOf func(node string) string
}

// sighting is a Lease and since when it is as it is, by this agent's clock: the
// clocks of two nodes may differ.
type sighting struct {
	version string
	at      time.Time
	renewed metav1.MicroTime
	digest  digest
	node    string
	gone    bool // it counts no more
	// proven: its node wrote it in this term. What was there at the begin may be of an
	// agent that has ended long ago.
	proven bool
}

// gather returns the entries of each policy, by "namespace/name", and removes the
// Leases that count no more.
func (s *survey) gather(ctx context.Context, now time.Time, leases []*coordinationv1.Lease) map[string][]entry {
	byPolicy := map[string][]entry{}
	defer func() { s.begun = true }()
	there := make(map[string]bool, len(leases))
	for _, l := range leases {
		there[l.Name] = true
		seen := s.look(now, l)
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

// look notes what a Lease says.
func (s *survey) look(now time.Time, l *coordinationv1.Lease) *sighting {
	seen := s.seen[l.Name]
	if seen != nil && seen.version == l.ResourceVersion && l.ResourceVersion != "" {
		return seen
	}
	var renewed metav1.MicroTime
	if l.Spec.RenewTime != nil {
		renewed = *l.Spec.RenewTime
	}
	next := &sighting{version: l.ResourceVersion, at: now, renewed: renewed, node: l.Annotations[NodeAnnotation]}
	next.proven = s.begun || s.identity != "" && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == s.identity
	if seen != nil && seen.renewed.Equal(&renewed) {
		next.at, next.proven = seen.at, seen.proven // somebody changed it, but not its node
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

// standing is what is known of the policies on a node.
type standing int

const (
	notInForce standing = iota // nothing says that they are in force
	inForce
	notSure // they are, by the word of an agent that may have ended long ago
)

// standing returns what the last gathering says of a node.
func (s *survey) standing(node string) standing {
	switch seen := s.seen[leaseName(node)]; {
	case seen == nil || seen.gone || seen.node != node || !seen.digest.Ready || seen.digest.More > 0:
		return notInForce
	case s.bootOf != nil && seen.digest.Boot != "" && s.bootOf(node) != "" && s.bootOf(node) != seen.digest.Boot:
		return notInForce
	case !seen.proven:
		return notSure
	}
	return inForce
}

func (s *survey) nodeGone(ctx context.Context, l *coordinationv1.Lease) bool {
	node := l.Annotations[NodeAnnotation]
	if node == "" {
		return false
	}
	_, err := s.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// remove deletes a Lease unless its node has just renewed it.
func (s *survey) remove(ctx context.Context, l *coordinationv1.Lease) {
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
