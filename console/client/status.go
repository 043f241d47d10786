package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/status"
)

// Status returns what the API server knows of the agents and of the policies of a namespace, "" for all that the
// caller may list, and of cluster policies. No agent is asked. Errors are *console.Refusal or *console.Unreachable.
func (c *Cluster) Status(ctx context.Context, namespace string, now time.Time) (s console.ClusterStatus, err error) {
	if s.Nodes, err = c.nodes(ctx, now); err != nil {
		return s, err
	}
	s.Problems = []console.PolicyCondition{}
	for _, kind := range []schema.GroupVersionResource{v1alpha1.GroupVersionResource(), v1alpha1.ClusterGroupVersionResource(), v1alpha1.NodeGroupVersionResource(), cnp.Resource()} {
		of := ""
		if kind == v1alpha1.GroupVersionResource() {
			of = namespace
		}
		err := c.List(ctx, kind, of, func(u *unstructured.Unstructured) error {
			s.Problems = append(s.Problems, wrongConditions(u)...)
			return nil
		})
		var refusal *console.Refusal
		switch {
		case err == nil, errors.As(err, &refusal) && refusal.Status == http.StatusNotFound: // the kind is not served
		case refusal != nil && refusal.Status == http.StatusForbidden:
			s.Left = append(s.Left, kind.GroupResource().String())
		default:
			return s, err
		}
	}
	return s, nil
}

// nodes reads the Leases of all nodes.
func (c *Cluster) nodes(ctx context.Context, now time.Time) ([]console.NodeReport, error) {
	list, err := c.client.CoordinationV1().Leases(c.login.Agents).List(ctx, metav1.ListOptions{LabelSelector: status.NodeLeases})
	switch {
	case apierrors.IsForbidden(err):
		return nil, console.Refuse(http.StatusForbidden, "you may not list the Leases of agents in namespace %s; have an administrator bind the Role there whose name ends in -status to you, or ask an agent with --node NODE, or all with --all-agents; is Namegate in another namespace, --agents names it", c.login.Agents)
	case err != nil:
		return nil, c.failed("list the Leases of agents", err)
	case len(list.Items) == 0:
		return nil, c.noAgents()
	}
	out := []console.NodeReport{}
	for i := range list.Items {
		l := &list.Items[i]
		n := console.NodeReport{}
		// A Lease without a readable report is of an agent of another version.
		_ = json.Unmarshal([]byte(l.Annotations[status.FindingsAnnotation]), &n)
		n.Node = l.Annotations[status.NodeAnnotation]
		if l.Spec.RenewTime != nil {
			n.Renewed = l.Spec.RenewTime.UTC()
		}
		if n.Silent = now.Sub(n.Renewed) > status.StaleAfter; n.Silent {
			n.InSync = false
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b console.NodeReport) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
}

// wrongConditions returns the conditions of a policy that say that it does not hold, or not wholly.
func wrongConditions(u *unstructured.Unstructured) (out []console.PolicyCondition) {
	var of struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &of) // conditions of another form are no agent's
	for _, c := range of.Status.Conditions {
		wrong := false
		switch c.Type {
		case policy.ConditionAccepted, cnp.ConditionAccepted:
			wrong = c.Status == metav1.ConditionFalse
		case status.ConditionEnforced, cnp.ConditionEnforced:
			wrong = c.Status == metav1.ConditionFalse && c.Reason != status.ReasonAudit
		case status.ConditionDNSBlocked:
			wrong = c.Status == metav1.ConditionTrue
		}
		if wrong {
			out = append(out, console.PolicyCondition{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Condition: c.Type + "=" + string(c.Status), Reason: c.Reason, Message: c.Message})
		}
	}
	return out
}
