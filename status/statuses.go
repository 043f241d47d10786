package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/status/backoff"
	"github.com/namegate/namegate/status/event"
)

// How conditions are written: by one agent of the cluster, for all policies. A thousand
// are written in 20 seconds if a request takes up to 0.3 seconds. In flight is a small part
// of the seats that API priority and fairness gives the level "workload-low" by default.
// Each write is an event for the agents of all nodes, so it must not be many more.
const (
	// StatusesPerSecond and StatusBurst are the client's rate for them.
	StatusesPerSecond = 50
	StatusBurst       = 100
	statusesInFlight  = 16
	// statusesTimeout is for how long one pass writes conditions: changes meanwhile do not
	// wait for the rest.
	statusesTimeout = 2 * time.Second
)

// statuses writes the conditions of policies. It is for one goroutine, and lasts
// for one term.
type statuses struct {
	client   dynamic.Interface
	recorder events.EventRecorder
	log      *slog.Logger
	written  map[types.UID]*written
	failing  atomic.Bool
}

// written is the last attempt with one policy.
type written struct {
	want    []metav1.Condition
	version string // of the policy that came of it, "" if it failed
	backoff.Backoff
}

// status is the wanted status of a policy of any kind. The first of want is the condition
// that says whether the policy is accepted.
type status struct {
	*metav1.ObjectMeta // of the policy
	resource           schema.GroupVersionResource
	ref                *corev1.ObjectReference
	have, want         []metav1.Condition
}

// name returns "namespace/name", or the name of a policy without a namespace.
func (s *status) name() string {
	if s.Namespace == "" {
		return s.Name
	}
	return s.Namespace + "/" + s.Name
}

func namespacedStatus(p *v1alpha1.FQDNNetworkPolicy, want []metav1.Condition) status {
	return status{&p.ObjectMeta, v1alpha1.GroupVersionResource(), event.Policy(p), p.Status.Conditions, want}
}

func clusterStatus(p *v1alpha1.ClusterFQDNNetworkPolicy, want []metav1.Condition) status {
	return status{&p.ObjectMeta, v1alpha1.ClusterGroupVersionResource(), event.ClusterPolicy(p), p.Status.Conditions, want}
}

// standardStatus returns the status of a ClusterNetworkPolicy; ok is false where its conditions
// cannot be read, so that those of others would be lost.
func standardStatus(u *unstructured.Unstructured) (s status, ok bool) {
	var has struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": u.Object["metadata"], "status": u.Object["status"]}, &has)
	return status{ObjectMeta: &has.Metadata, resource: cnp.Resource(), ref: event.ClusterNetworkPolicy(u), have: has.Status.Conditions}, err == nil
}

// write writes the statuses that differ, several at once. It returns how long to wait before
// some must be looked at again, 0 if that needs a change first.
func (s *statuses) write(ctx context.Context, now func() time.Time, all []status) time.Duration {
	var mu sync.Mutex
	var again time.Duration
	sooner := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if d > 0 && (again == 0 || d < again) {
			again = d
		}
	}
	var writes errgroup.Group
	writes.SetLimit(statusesInFlight)
	until := now().Add(statusesTimeout)
	for _, one := range all {
		a, wait := s.due(now(), one)
		sooner(wait)
		if a == nil {
			continue
		}
		if ctx.Err() != nil || now().After(until) {
			sooner(passRest)
			break
		}
		writes.Go(func() error {
			sooner(s.attempt(ctx, now, a))
			return nil
		})
	}
	_ = writes.Wait() // it never fails
	return again
}

// attempt is a write that is due.
type attempt struct {
	status
	merged []metav1.Condition
	w      *written
}

// due returns the attempt to make now, or how long to wait before the policy must be
// looked at again, 0 if that needs a change first.
func (s *statuses) due(now time.Time, is status) (*attempt, time.Duration) {
	p, want := is.ObjectMeta, is.want
	if p.DeletionTimestamp != nil {
		return nil, 0
	}
	w := s.written[p.UID]
	merged, changed := mergeConditions(is.have, want, now)
	if !changed {
		if w != nil {
			w.Settled(now)
		}
		return nil, 0
	}
	if w == nil {
		w = &written{}
		s.written[p.UID] = w
	}
	same := slices.Equal(w.want, want)
	switch left := w.Left(now); {
	case same && w.version != "" && w.version == p.ResourceVersion:
		return nil, 0 // the source cannot read the written status; more of it is no use
	case same && left > 0:
		return nil, left
	case !same && w.version != "" && w.version != p.ResourceVersion && w.Since(now) < backoff.First:
		return nil, backoff.First - w.Since(now) // most likely this version is older than the written one
	}
	if !same {
		w.Backoff = backoff.Backoff{}
	}
	w.want, w.version = want, ""
	return &attempt{is, merged, w}, 0
}

// attempt makes a write and returns how long to wait before the next, 0 if none is due.
// Attempts with several policies may be under way.
func (s *statuses) attempt(ctx context.Context, now func() time.Time, a *attempt) time.Duration {
	version, err := s.patch(ctx, a)
	ended := now() // the client's rate may have held it up
	a.w.Attempted(ended)
	if err != nil {
		s.failed(ctx, a, err)
		return a.w.Left(ended)
	}
	a.w.version = version
	s.failing.Store(false)
	s.announce(&a.status, meta.FindStatusCondition(a.merged, a.want[0].Type))
	return 0
}

// patch writes the conditions if the policy has not changed meanwhile.
func (s *statuses) patch(ctx context.Context, a *attempt) (version string, err error) {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": a.ResourceVersion, "uid": a.UID},
		"status":   map[string]any{"conditions": a.merged},
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return "", fmt.Errorf("the status of the policy %s: %w", a.name(), err)
	}
	u, err := s.client.Resource(a.resource).Namespace(a.Namespace).
		Patch(ctx, a.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: ManagedBy}, "status")
	if err != nil {
		return "", fmt.Errorf("writing the status of the policy %s: %w", a.name(), err)
	}
	return u.GetResourceVersion(), nil
}

// failed logs the first of failures in a row. That the policy changed, or went, is none.
func (s *statuses) failed(ctx context.Context, a *attempt, err error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil || s.failing.Swap(true) {
		return
	}
	s.log.Warn("policies' conditions cannot be written; trying again", "policy", a.name(), "error", err)
}

// announce emits an event where something new is wrong with a policy, or nothing is any more.
func (s *statuses) announce(of *status, is *metav1.Condition) {
	was := cmp.Or(meta.FindStatusCondition(of.have, is.Type), &metav1.Condition{})
	kind := corev1.EventTypeWarning
	switch {
	case was.Reason == is.Reason && was.Message == is.Message:
		return
	case is.Reason == policy.ReasonAccepted:
		if was.Reason == "" {
			return
		}
		kind = corev1.EventTypeNormal
	}
	s.recorder.Eventf(of.ref, nil, kind, is.Reason, actionAccept, "%s", event.Clip(is.Message, event.MaxNote))
}

// forget removes the state of deleted policies.
func (s *statuses) forget(there map[types.UID]bool) {
	maps.DeleteFunc(s.written, func(uid types.UID, _ *written) bool { return !there[uid] })
}
