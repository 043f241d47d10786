package status

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
)

// The names of the agents' objects. LeaderLease is the Lease of the election.
const (
	LeaderLease = "namegate-leader"
	// NodeLeasePrefix and the node's name are the name of a node's Lease.
	NodeLeasePrefix = "namegate-node-"
	// FindingsAnnotation of a node's Lease holds its findings as JSON.
	FindingsAnnotation = "namegate.io/findings"
	// NodeAnnotation of a node's Lease holds the whole name of the node.
	NodeAnnotation = "namegate.io/node"
	// UninstallingAnnotation marks the agents' DaemonSet: the agents write nothing any more.
	UninstallingAnnotation = "namegate.io/uninstalling"

	// ManagedByLabel is ManagedBy on everything that an agent writes, but for the Lease of the election.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "namegate"

	leaseLabel = "namegate.io/lease"
	// NodeLeases selects the Leases of nodes.
	NodeLeases = leaseLabel + "=node"
)

// How often a node's Lease is renewed, at the least, and when a Lease that was not renewed
// counts no more. A minute is 17 writes a second with 1,000 nodes; three
// leave room for a restart of the API server.
const (
	renewEvery = time.Minute
	staleAfter = StaleAfter
	// findingsRest is how long a Lease is left alone after a write, so that findings that
	// come and go do not cause a write each time.
	findingsRest = 5 * time.Second
)

// StaleAfter is how old the renewal of a node's Lease may be: an older one is of an agent that does not report.
const StaleAfter = 3 * time.Minute

// nodeLease is the Lease of this node. It is for one goroutine.
type nodeLease struct {
	*Reporter
	last    *coordinationv1.Lease // as the server has it, nil: not known
	text    string                // its findings
	written time.Time
	next    time.Time // before it nothing is written
	limiter workqueue.TypedRateLimiter[string]
	failing bool
}

func newNodeLease(r *Reporter) *nodeLease {
	return &nodeLease{Reporter: r, limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstWait, renewEvery)}
}

// leaseName returns the name of a node's Lease. Names that would be too long end in a hash.
func leaseName(node string) string {
	if name := NodeLeasePrefix + node; len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	return NodeLeasePrefix + strings.TrimRight(node[:200], ".-") + "-" + hex.EncodeToString(sum[:8])
}

// sync writes the Lease if that is due, and tells whether it did.
func (l *nodeLease) sync(ctx context.Context, findings []Finding) bool {
	now := l.now()
	d := digestOf(findings)
	d.Version, d.Enforce = l.o.Version, l.o.Enforce
	if s := l.state.Load(); s != nil {
		d.InSync = s.InSync
	}
	text, err := d.encode()
	if err != nil {
		l.log.Error("cannot report this node's findings", "error", err)
		return false
	}
	if now.Before(l.next) || l.last != nil && text == l.text && now.Sub(l.written) < renewEvery {
		return false
	}
	if err := l.write(ctx, now, text); err != nil {
		l.failed(ctx, now, err)
		return false
	}
	if l.failing {
		l.log.Info("this node's findings are reported again")
	}
	l.limiter.Forget(l.o.Node)
	l.text, l.written, l.next, l.failing = text, now, now.Add(findingsRest), false
	return true
}

func (l *nodeLease) failed(ctx context.Context, now time.Time, err error) {
	l.last = nil // another agent of this node may have written it
	l.next = now.Add(l.limiter.When(l.o.Node))
	if ctx.Err() == nil && !l.failing && !apierrors.IsConflict(err) {
		l.failing = true
		l.log.Warn("cannot report this node's findings; trying again", "error", err)
	}
}

func (l *nodeLease) write(ctx context.Context, now time.Time, text string) error {
	leases := l.o.Client.CoordinationV1().Leases(l.o.Namespace)
	name := leaseName(l.o.Node)
	var err error
	if l.last == nil {
		l.last, err = leases.Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.o.Namespace, OwnerReferences: l.owner(ctx)}}
		l.fill(lease, now, text)
		l.last, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		lease := l.last.DeepCopy()
		l.fill(lease, now, text)
		l.last, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the Lease %s: %w", name, err)
	}
	return nil
}

func (l *nodeLease) fill(lease *coordinationv1.Lease, now time.Time, text string) {
	lease.Labels, lease.Annotations = maps.Clone(lease.Labels), maps.Clone(lease.Annotations)
	metav1.SetMetaDataLabel(&lease.ObjectMeta, ManagedByLabel, ManagedBy)
	metav1.SetMetaDataLabel(&lease.ObjectMeta, leaseLabel, "node")
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, NodeAnnotation, l.o.Node)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, FindingsAnnotation, text)
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != l.o.Identity {
		lease.Spec.HolderIdentity = &l.o.Identity
		lease.Spec.AcquireTime = &metav1.MicroTime{Time: now}
	}
	seconds := int32(staleAfter / time.Second)
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
}

// owner is the Node: the Lease goes with it. Without it the Lease grows stale
// instead, so an error does not matter.
func (l *nodeLease) owner(ctx context.Context) []metav1.OwnerReference {
	node, err := l.o.Client.CoreV1().Nodes().Get(ctx, l.o.Node, metav1.GetOptions{})
	if err != nil || node.UID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}
