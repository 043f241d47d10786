package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/source/manifest"
)

// API lists objects of a cluster, as access.Cluster does: with namespace "" those of all
// namespaces. A *console.Refusal of status 403 or 404 says that the caller may not list them,
// or that the kind is not served.
type API interface {
	List(ctx context.Context, kind schema.GroupVersionResource, namespace string, each func(*unstructured.Unstructured) error) error
}

// Unchecked is a part of the check that was left out.
type Unchecked struct {
	What string `json:"what"` // and the reasons of its findings
	Why  string `json:"why"`  // and how to check it
}

func (u Unchecked) String() string { return console.Safe("not checked: " + u.What + ": " + u.Why) }

// servedKind is a kind that is read from a cluster, and what its objects decide.
type servedKind struct {
	schema.GroupVersionResource
	clusterWide bool
	decides     string
}

var (
	servedPolicies        = servedKind{v1alpha1.GroupVersionResource(), false, "policies of namespaces"}
	servedClusterPolicies = []servedKind{
		{v1alpha1.ClusterGroupVersionResource(), true, clusterPoliciesDecide},
		{v1alpha1.NodeGroupVersionResource(), true, "policies for nodes"},
		{cnp.Resource(), true, clusterPoliciesDecide},
	}
	servedNetworkPolicies = servedKind{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, false, "NetworkPolicies"}
	servedPods            = servedKind{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, false, "the pods of policies and rules (SelectsNothing, HostNetwork, ServicePort, NamedPort)"}
	servedServices        = servedKind{schema.GroupVersionResource{Version: "v1", Resource: "services"}, false, "Services (NoService, ServicePort, ServiceAddress)"}
	servedNamespaces      = servedKind{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, true, "labels of namespaces (SelectsNothing of cluster policies, answers with --from)"}
	servedNodes           = servedKind{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, true, "the nodes of policies for nodes (SelectsNothing)"}
	servedWorkloads       = []servedKind{
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, false, deploymentsDecide},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, false, deploymentsDecide},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, false, deploymentsDecide},
		{schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}, false, deploymentsDecide},
	}
)

const clusterPoliciesDecide = "cluster policies, and the names that they accept (SharedAddress)"

// deploymentsDecide: the policies of a CronJob between two runs, and of a Deployment without
// replicas, select no pod and are no mistake.
const deploymentsDecide = "the labels of workloads that have no pods now (SelectsNothing may be wrong)"

// cluster is what was read of a cluster.
type cluster struct {
	namespaces []string // whose objects were wanted; nil for all
	// read has the namespaces in which the objects of a kind are known, "" for all of them.
	read       map[schema.GroupVersionResource]map[string]bool
	selectable []Pod // and the pods of templates; nil if these were not read
	unchecked  []Unchecked
}

// knows tells whether all objects of a kind in a namespace are known, or with "" all of them.
func (c *cluster) knows(kind servedKind, namespace string) bool {
	return c.read[kind.GroupVersionResource][""] || c.read[kind.GroupVersionResource][namespace]
}

// clusterReader adds the objects of a cluster to Manifests.
type clusterReader struct {
	*Manifests
	api     API
	options Options
}

// ReadCluster adds the objects of some namespaces of a cluster, nil for all of them, and what
// the findings about them need. A file's object counts in place of the cluster's of that name.
// Kinds that the caller may not list are left out, and Unchecked says which findings these
// decide. The error is a *console.Refusal if there is nothing to check, or the API's.
func (m *Manifests) ReadCluster(ctx context.Context, api API, namespaces []string, o Options) error {
	m.cluster = &cluster{namespaces: namespaces, read: map[schema.GroupVersionResource]map[string]bool{}}
	r := clusterReader{m, api, o}
	refused, err := r.kinds(ctx, servedPolicies)
	if err == nil {
		_, err = r.kinds(ctx, servedClusterPolicies...)
	}
	ofCluster := slices.ContainsFunc(m.Policies, (*Policy).ofCluster)
	switch {
	case err != nil:
		return err
	case refused != nil && len(m.Files) == 0 && (namespaces != nil || !ofCluster):
		return refused
	}
	more := []servedKind{servedNetworkPolicies, servedPods, servedServices}
	if ofCluster || len(o.From) > 0 {
		more = append(more, servedNamespaces)
	}
	if namespaces == nil && slices.ContainsFunc(m.Policies, func(p *Policy) bool { return p.Nodes != nil }) || slices.ContainsFunc(o.From, func(f explain.From) bool { return f.Node != "" }) {
		more = append(more, servedNodes)
	}
	_, err = r.kinds(ctx, more...)
	if err != nil || !slices.ContainsFunc(m.Policies, func(p *Policy) bool { return m.selectsNothing(p) != "" }) {
		return err
	}
	running := m.Pods
	_, err = r.kinds(ctx, servedWorkloads...)
	m.cluster.selectable, m.Pods = m.Pods, running
	return err
}

// in returns the namespaces whose objects of a kind are wanted, "" for all: of Services also
// those of names.
func (r clusterReader) in(kind servedKind) []string {
	all := r.cluster.namespaces
	switch {
	case all == nil || kind.clusterWide:
		return []string{""}
	case kind != servedServices:
		return all
	}
	for _, p := range r.Policies {
		for _, w := range p.matches {
			if s, is := serviceNamed(w.pattern, r.options); is && p.own != nil {
				all = append(slices.Clip(all), s.Namespace)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// kinds adds the objects of kinds. refused is why not all of them could be read.
func (r clusterReader) kinds(ctx context.Context, kinds ...servedKind) (refused, err error) {
	for _, kind := range kinds {
		known := map[string]bool{}
		r.cluster.read[kind.GroupVersionResource] = known
		for _, namespace := range r.in(kind) {
			var refusal *console.Refusal
			switch err := r.list(ctx, kind, namespace); {
			case err == nil:
				known[namespace] = true
			case !errors.As(err, &refusal) || refusal.Status != http.StatusForbidden && refusal.Status != http.StatusNotFound:
				return nil, err
			case refusal.Status == http.StatusForbidden:
				why := mayNot(refusal, kind, namespace)
				refused = console.Refuse(refusal.Status, "%s", why)
				r.Leave(kind.decides, why)
			case kind.Group == v1alpha1.Group:
				refused = console.Refuse(refusal.Status, "%s; is Namegate installed in this cluster?", refusal.Message)
			}
		}
	}
	return refused, nil
}

// mayNot says which permission is missing.
func mayNot(refusal *console.Refusal, kind servedKind, namespace string) string {
	in, flag := " in namespace "+namespace, " -n "+namespace
	switch {
	case kind.clusterWide:
		in, flag = "", ""
	case namespace == "":
		in, flag = " in all namespaces", " -A"
	}
	return fmt.Sprintf("%s%s; ask an administrator for this permission (kubectl auth can-i list %s%s)", refusal.Message, in, kind.GroupResource(), flag)
}

// listPage is how many objects are decoded at a time.
const listPage = 500

// list adds the objects of a kind in a namespace.
func (r clusterReader) list(ctx context.Context, kind servedKind, namespace string) error {
	var items [][]byte
	var changed []time.Time
	take := func() error {
		objects, err := manifest.InspectServed(items)
		if err != nil {
			return err
		}
		for i := range objects {
			r.object(place{changed: changed[i]}, &objects[i])
		}
		items, changed = items[:0], changed[:0]
		return nil
	}
	err := r.api.List(ctx, kind.GroupVersionResource, namespace, func(u *unstructured.Unstructured) error {
		changed = append(changed, lastChange(u))
		u.SetManagedFields(nil)
		text, err := u.MarshalJSON()
		if err != nil {
			return fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		if items = append(items, text); len(items) < listPage {
			return nil
		}
		return take()
	})
	if err != nil {
		return err
	}
	return take()
}

// lastChange returns when an object was last written, its status aside.
func lastChange(u *unstructured.Unstructured) time.Time {
	last := u.GetCreationTimestamp().Time
	for _, f := range u.GetManagedFields() {
		if f.Time != nil && f.Subresource == "" && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// Leave reports a part that was left out, and why.
func (m *Manifests) Leave(what, why string) {
	all := &m.cluster.unchecked
	i := slices.IndexFunc(*all, func(u Unchecked) bool { return u.What == what })
	if i < 0 {
		*all = append(*all, Unchecked{what, why})
	} else if (*all)[i].Why != why {
		(*all)[i].Why += "; " + why
	}
}

// Spaces returns the namespaces of the policies, for which a cluster is to be read; nil for all.
func (m *Manifests) Spaces() []string {
	all := []string{}
	for _, p := range m.Policies {
		if p.ofCluster() {
			return nil
		}
		all = append(all, p.namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// asked leaves the findings about objects that are to be checked: with files the files', else
// the cluster's, of one namespace without the cluster policies.
func (m *Manifests) asked(findings []Finding) []Finding {
	if m.cluster == nil {
		return findings
	}
	return slices.DeleteFunc(findings, func(f Finding) bool {
		ofCluster := strings.HasPrefix(f.Object, cfqdnnp.Object("")) || strings.HasPrefix(f.Object, cnp.Object("")) || strings.HasPrefix(f.Object, nnp.Object(""))
		return f.File == "" && f.Object != "" && (len(m.Files) > 0 || m.cluster.namespaces != nil && ofCluster)
	})
}

// source names the origin of the objects.
func (m *Manifests) source() string {
	switch {
	case m.cluster == nil:
		return "these manifests"
	case len(m.Files) > 0:
		return "these manifests and the cluster"
	}
	return "the cluster"
}

// have begins a sentence about the number of objects.
func (m *Manifests) have() string {
	if m.cluster != nil && len(m.Files) == 0 {
		return "the cluster has"
	}
	return m.source() + " have"
}

// scope names the part of the cluster that was read, "" for none.
func (m *Manifests) scope() string {
	switch {
	case m.cluster == nil:
		return ""
	case m.cluster.namespaces == nil:
		return "all namespaces"
	case len(m.cluster.namespaces) == 0:
		return "no namespace"
	case len(m.cluster.namespaces) == 1:
		return "namespace " + m.cluster.namespaces[0]
	}
	return "namespaces " + strings.Join(m.cluster.namespaces, ", ")
}
