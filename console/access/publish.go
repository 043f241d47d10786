package access

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/status"
)

// leaseLabel says what a Lease is for, as on all that agents write.
const (
	leaseLabel = "namegate.io/lease"
	leaseKind  = "console"
)

const (
	// publishLook is the interval at which an agent checks its published entry.
	publishLook = 5 * time.Minute
	// publishAgain is how soon a failure is tried again.
	publishAgain = 5 * time.Second
	// publishTime bounds one try.
	publishTime = 20 * time.Second
	// removeTime bounds the removal of the published entry when an agent ends.
	removeTime = 3 * time.Second
	// maxTidy is how many of the other nodes of a Lease are asked for at a look:
	// entries of nodes that are gone go, however many agents look.
	maxTidy = 8
)

// publisher tells where a console is.
type publisher struct {
	Options
	listen []netip.AddrPort
	pin    entry.Pin
}

// publisher returns the publisher of the listeners' actual addresses.
func (s *Server) publisher(listeners []net.Listener) *publisher {
	p := &publisher{Options: s.o, pin: s.pin}
	for _, l := range listeners {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			at := a.AddrPort()
			p.listen = append(p.listen, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		}
	}
	return p
}

// keep publishes, and looks again and again whether it is still so, until ctx ends.
// What is published stays, as the next agent of the node writes over it, unless
// there is to be none.
func (p *publisher) keep(ctx context.Context) {
	keep(ctx, publishLook, publishAgain, p.publish, func(err error) {
		if err == nil {
			p.Log.Info("this agent's console is published again")
			return
		}
		p.Log.Warn("cannot publish this agent's console; trying again", "error", err)
	})
	if p.Leaving != nil && p.Leaving() {
		if err := p.remove(context.WithoutCancel(ctx)); err != nil {
			p.Log.Warn("cannot withdraw this agent's console", "error", err)
		}
	}
}

// remove takes back what this agent published, and nothing of the next one's.
func (p *publisher) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	leases := p.Client.CoordinationV1().Leases(p.Namespace)
	name, key := entry.LeaseOf(p.Node), entry.Entry{Node: p.Node}.Key()
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the Lease %s: %w", name, err)
	}
	if e, err := entry.Decode(p.Node, lease.Annotations[key]); err != nil || e.Pin != p.pin {
		return nil
	}
	return p.change(ctx, name, map[string]any{key: nil})
}

// change writes annotations of a Lease. Each node has its own, so that none is
// overwritten.
func (p *publisher) change(ctx context.Context, name string, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err == nil {
		_, err = p.Client.CoordinationV1().Leases(p.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: status.ManagedBy})
	}
	if err != nil {
		return fmt.Errorf("change the Lease %s: %w", name, err)
	}
	return nil
}

// publish updates the node's annotation, and removes the annotations of deleted nodes.
func (p *publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	addresses, err := p.addresses(ctx)
	if err != nil {
		return err
	}
	e := entry.Entry{Node: p.Node, Addresses: addresses, Pin: p.pin}
	text, err := e.Encode()
	if err != nil {
		return err
	}
	leases := p.Client.CoordinationV1().Leases(p.Namespace)
	name := entry.LeaseOf(p.Node)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.create(ctx, name, e.Key(), text)
	}
	if err != nil {
		return fmt.Errorf("read the Lease %s: %w", name, err)
	}
	change := map[string]any{}
	if lease.Annotations[e.Key()] != text {
		change[e.Key()] = text
	}
	for _, key := range p.gone(ctx, lease) {
		change[key] = nil
	}
	if len(change) == 0 {
		return nil
	}
	return p.change(ctx, name, change)
}

func (p *publisher) create(ctx context.Context, name, key, text string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: p.Namespace, OwnerReferences: p.owner(ctx),
		Labels:      map[string]string{status.ManagedByLabel: status.ManagedBy, leaseLabel: leaseKind},
		Annotations: map[string]string{key: text},
	}}
	if _, err := p.Client.CoordinationV1().Leases(p.Namespace).Create(ctx, lease, metav1.CreateOptions{FieldManager: status.ManagedBy}); err != nil {
		return fmt.Errorf("make the Lease %s: %w", name, err)
	}
	return nil
}

// owner is the DaemonSet: the Leases go with it. Without it they stay until somebody
// removes them, so an error does not matter.
func (p *publisher) owner(ctx context.Context) []metav1.OwnerReference {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", p.DaemonSet).String()}
	sets, err := p.Client.AppsV1().DaemonSets(p.Namespace).List(ctx, only)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(sets.Items, func(s appsv1.DaemonSet) bool { return s.Name == p.DaemonSet && s.UID != "" })
	if i < 0 {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: p.DaemonSet, UID: sets.Items[i].UID}}
}

// addresses are the addresses that other nodes can dial; none if the console is only for
// the node and for port-forwards.
func (p *publisher) addresses(ctx context.Context) (out []netip.AddrPort, err error) {
	for _, a := range p.listen {
		switch {
		case a.Addr().IsLoopback():
		case a.Addr().IsUnspecified():
			node, err := p.Client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("read the addresses of node %s: %w", p.Node, err)
			}
			for _, n := range node.Status.Addresses {
				if ip, err := netip.ParseAddr(n.Address); err == nil && n.Type == corev1.NodeInternalIP {
					out = append(out, netip.AddrPortFrom(ip, a.Port()))
				}
			}
		default:
			out = append(out, a)
		}
	}
	return slices.Compact(out), nil
}

// gone returns the annotations of nodes that are not there any more, of a few that
// chance chooses.
func (p *publisher) gone(ctx context.Context, lease *coordinationv1.Lease) (out []string) {
	asked := 0
	for key := range lease.Annotations {
		node, ours := strings.CutSuffix(key, entry.Suffix)
		if !ours || node == p.Node {
			continue
		}
		if asked++; asked > maxTidy {
			break
		}
		if _, err := p.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			out = append(out, key)
		}
	}
	return out
}
