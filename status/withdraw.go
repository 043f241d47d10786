package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// withdrawAgain is between two attempts of Withdraw: the agents need a moment to see the mark
// on the DaemonSet.
const withdrawAgain = 2 * time.Second

// Withdraw marks the DaemonSet, so that the agents write nothing any more, and deletes
// their objects: the nodes' Leases and the election's Lease. It returns when
// none of them was written again for a while, or the error of the last attempt when ctx
// ends. Conditions of policies stay as they are.
func (r *Reporter) Withdraw(ctx context.Context) error {
	if r.o.DaemonSet == "" {
		return errors.New("the agents' DaemonSet is not known; write --daemonset")
	}
	clean := 0
	for {
		found, err := 0, r.mark(ctx)
		if err == nil {
			found, err = r.dropLeases(ctx)
		}
		if clean++; err != nil || found > 0 {
			clean = 0
		}
		if clean == 2 {
			return nil
		}
		if !r.wait(ctx, nil, withdrawAgain) {
			return errors.Join(fmt.Errorf("something of what the agents wrote may be left: %w", context.Cause(ctx)), err)
		}
	}
}

// mark annotates the DaemonSet. Without one there is no agent either.
func (r *Reporter) mark(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{UninstallingAnnotation: "true"}}})
	if err != nil {
		return fmt.Errorf("marking the DaemonSet %s: %w", r.o.DaemonSet, err)
	}
	_, err = r.o.Client.AppsV1().DaemonSets(r.o.Namespace).Patch(ctx, r.o.DaemonSet, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: ManagedBy})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("marking the DaemonSet %s: %w", r.o.DaemonSet, err)
	}
	return nil
}

// dropLeases deletes the Leases that it finds and returns their number.
func (r *Reporter) dropLeases(ctx context.Context) (gone int, err error) {
	leases := r.o.Client.CoordinationV1().Leases(r.o.Namespace)
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("listing the Leases of %s: %w", r.o.Namespace, err)
	}
	var failed error
	for _, l := range list.Items {
		// Leases of nodes, and of consoles (package access).
		if l.Name != LeaderLease && (l.Labels[ManagedByLabel] != ManagedBy || l.Labels[leaseLabel] == "") {
			continue
		}
		gone++
		if err := leases.Delete(ctx, l.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, fmt.Errorf("removing the Lease %s: %w", l.Name, err))
		}
	}
	return gone, failed
}
