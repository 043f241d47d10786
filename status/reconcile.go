package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
)

// How conditions are written: by one agent of the cluster, for all policies. A thousand
// are written in 20 seconds if a request takes up to 0.3 seconds. In flight is a small part
// of the seats that API priority and fairness gives the level "workload-low" by default.
// Each write is an event for the agents of all nodes, so it must not be many more.
const (
	// StatusesPerSecond and StatusBurst are the rate of the client that writes them.
	StatusesPerSecond = 50
	StatusBurst       = 100
	statusesInFlight  = 16
)

// How long a policy is left alone after a failed write, or after a write that another program
// undoes: the wait doubles from the first to the most, so that two writers that disagree do not
// make each other write without end.
const (
	firstWait = time.Second
	mostWait  = 5 * time.Minute
)

// written is the last write of the conditions of one policy.
type written struct {
	want, ours []metav1.Condition
	// versions of the policy: by which it was written, and that came of it. While the source has
	// one of them, it has no news.
	versions [2]string
	next     time.Time // before it the same conditions are not written again
}

// reconcile writes the conditions of a policy if they differ. An error is retried with backoff.
func (t *term) reconcile(ctx context.Context, k key) error {
	t.mu.Lock()
	x, w := t.index, t.written[k]
	t.mu.Unlock()
	s := x.subject(k, &t.o, t.reports.of(k.id()))
	if s == nil || s.GetDeletionTimestamp() != nil {
		t.queue.Forget(k)
		t.wrote(k, nil)
		return nil
	}
	now := t.now()
	if w == nil {
		w = &written{}
	} else if slices.Contains(w.versions[:], s.GetResourceVersion()) {
		s.have = w.ours // the source has not told of the write yet, or cannot read it
	}
	ours, changed := merged(s.have, s.want, now)
	if !changed {
		return nil
	}
	if !slices.Equal(w.want, s.want) || now.Sub(w.next) > 2*mostWait {
		t.queue.Forget(k)
	} else if left := w.next.Sub(now); left > 0 {
		t.queue.AddAfter(k, left)
		return nil
	}
	t.wrote(k, &written{s.want, w.ours, w.versions, now})
	version, err := t.apply(ctx, k, s, ours)
	if err != nil {
		return err
	}
	t.failing.Store(false)
	t.wrote(k, &written{s.want, ours, [2]string{s.GetResourceVersion(), version}, t.now().Add(t.limiter.When(k))})
	t.announce(k, s, meta.FindStatusCondition(ours, s.want[0].Type))
	return nil
}

// wrote keeps the last write of a policy's conditions, or forgets it.
func (t *term) wrote(k key, w *written) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w == nil {
		delete(t.written, k)
		return
	}
	t.written[k] = w
}

// merged returns wanted conditions with their times, and whether they differ from those that the
// policy has. A time changes with the status alone.
func merged(have, want []metav1.Condition, now time.Time) (ours []metav1.Condition, changed bool) {
	for _, w := range want {
		w.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		is := meta.FindStatusCondition(have, w.Type)
		if is != nil && is.Status == w.Status && !is.LastTransitionTime.IsZero() {
			w.LastTransitionTime = is.LastTransitionTime
		}
		ours, changed = append(ours, w), changed || is == nil || *is != w
	}
	return ours, changed
}

// apply writes conditions by server-side apply, which leaves those of others alone, and returns the
// version that came of it.
func (t *term) apply(ctx context.Context, k key, s *subject, ours []metav1.Condition) (version string, err error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.FQDNNetworkPolicyStatus{Conditions: ours}) // as of the other kinds
	if err != nil {
		return "", fmt.Errorf("the status of the %s: %w", k.object(), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetNamespace(k.namespace)
	u.SetName(k.name)
	u.SetUID(s.GetUID()) // not of another policy of the same name
	after, err := cnp.AsServed(k.GroupVersionResource, func(of schema.GroupVersionResource) (*unstructured.Unstructured, error) {
		u.SetGroupVersionKind(of.GroupVersion().WithKind(k.kind().Kind))
		return t.o.Dynamic.Resource(of).Namespace(k.namespace).ApplyStatus(ctx, k.name, u, metav1.ApplyOptions{FieldManager: ManagedBy, Force: true})
	})
	if err != nil {
		return "", fmt.Errorf("writing the status of the %s: %w", k.object(), err)
	}
	return after.GetResourceVersion(), nil
}

// failed logs the first of failures in a row. That the policy changed, or went, is none.
func (t *term) failed(ctx context.Context, err error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil || t.failing.Swap(true) {
		return
	}
	t.log.Warn("policies' conditions cannot be written; trying again", "error", err)
}

// announce emits an event where something new is wrong with a policy, or nothing is any more. Of a
// cluster policy the event leaves the condition's text to those who may read the policy.
func (t *term) announce(k key, s *subject, is *metav1.Condition) {
	was := cmp.Or(meta.FindStatusCondition(s.have, is.Type), &metav1.Condition{})
	kind, text := corev1.EventTypeWarning, is.Message
	switch {
	case was.Reason == is.Reason && was.Message == is.Message:
		return
	case is.Reason == policy.ReasonAccepted:
		if was.Reason == "" {
			return
		}
		kind = corev1.EventTypeNormal
	case s.GetNamespace() == "":
		text = "the condition " + is.Type + " of the policy says what is wrong with it"
	}
	of := k.reference(s)
	of.ResourceVersion = s.GetResourceVersion() // a series of events keeps its first note
	t.recorder.Eventf(of, nil, kind, is.Reason, actionAccept, "%s", clip(text, maxNote))
}
