package report

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// statuses writes the conditions of policies. It is for one goroutine, and lasts
// for one term.
type statuses struct {
	client   dynamic.Interface
	recorder events.EventRecorder
	log      *slog.Logger
	written  map[types.UID]*written
	failing  bool
}

// written is the last attempt with one policy.
type written struct {
	want    []metav1.Condition
	version string // of the policy that came of it, "" if it failed
	patience
}

// bring makes the policy's status say what it should. It returns how long to wait
// before the policy must be looked at again, 0 if that needs a change first.
func (s *statuses) bring(ctx context.Context, now time.Time, p *v1alpha1.FQDNNetworkPolicy, want []metav1.Condition) time.Duration {
	if p.DeletionTimestamp != nil {
		return 0
	}
	w := s.written[p.UID]
	merged, changed := mergeConditions(p.Status.Conditions, want, now)
	if !changed {
		if w != nil {
			w.quiet(now)
		}
		return 0
	}
	if w == nil {
		w = &written{}
		s.written[p.UID] = w
	}
	same := slices.Equal(w.want, want)
	switch left := w.left(now); {
	case same && w.version != "" && w.version == p.ResourceVersion:
		return 0 // the source cannot read what is written; no use in more of it
	case same && left > 0:
		return left
	case !same && w.version != "" && w.version != p.ResourceVersion && w.since(now) < patienceFirst:
		return patienceFirst - w.since(now) // most likely this version is older than what was written
	}
	if !same {
		w.patience = patience{}
	}
	w.want, w.version = want, ""
	w.tried(now)
	version, err := s.patch(ctx, p, merged)
	if err != nil {
		s.failed(ctx, p, err)
		return w.left(now)
	}
	w.version, s.failing = version, false
	s.announce(p, findCondition(merged, policy.ConditionAccepted))
	return 0
}

// patch writes the conditions if nobody changed the policy meanwhile.
func (s *statuses) patch(ctx context.Context, p *v1alpha1.FQDNNetworkPolicy, conditions []metav1.Condition) (version string, err error) {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": p.ResourceVersion, "uid": p.UID},
		"status":   v1alpha1.FQDNNetworkPolicyStatus{Conditions: conditions},
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return "", fmt.Errorf("the status of the policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	u, err := s.client.Resource(v1alpha1.GroupVersionResource()).Namespace(p.Namespace).
		Patch(ctx, p.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: ManagedBy}, "status")
	if err != nil {
		return "", fmt.Errorf("writing the status of the policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	return u.GetResourceVersion(), nil
}

// failed logs the first of failures in a row. That the policy changed, or went, is none.
func (s *statuses) failed(ctx context.Context, p *v1alpha1.FQDNNetworkPolicy, err error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil || s.failing {
		return
	}
	s.failing = true
	s.log.Warn("policies' conditions cannot be written; trying again", "policy", p.Namespace+"/"+p.Name, "error", err)
}

// announce emits an event where something new is wrong with a policy, or nothing is any more.
func (s *statuses) announce(p *v1alpha1.FQDNNetworkPolicy, is metav1.Condition) {
	was := findCondition(p.Status.Conditions, policy.ConditionAccepted)
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
	s.recorder.Eventf(policyRef(p), nil, kind, is.Reason, actionAccept, "%s", clip(is.Message, maxNote))
}

// forget drops what is known of policies that are gone.
func (s *statuses) forget(policies map[string]*v1alpha1.FQDNNetworkPolicy) {
	there := make(map[types.UID]bool, len(policies))
	for _, p := range policies {
		there[p.UID] = true
	}
	for uid := range s.written {
		if !there[uid] {
			delete(s.written, uid)
		}
	}
}
