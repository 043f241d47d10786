package serve

import (
	"net/http"
	"slices"
	"strings"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
)

// scope reads the namespace and the pod of a request, "" for all, and refuses a caller
// who may not see them.
func (r *request) scope() (namespace, pod string, err error) {
	q := r.URL.Query()
	if namespace = q.Get("namespace"); q.Get("pod") != "" {
		if namespace, pod, err = console.PodName(namespace, q.Get("pod")); err != nil {
			return "", "", console.Refuse(http.StatusBadRequest, "%v", err)
		}
	}
	return namespace, pod, r.may(namespace)
}

// node returns the node that a request is about, nil for none. Nodes are for callers who may get the
// kind that selects them.
func (r *request) node() (*policy.Pod, error) {
	name := r.URL.Query().Get("node")
	if name == "" {
		return nil, nil
	}
	if err := r.mayRead(nnp.ID("")); err != nil {
		return nil, err
	}
	if name != r.Node {
		return nil, console.Refuse(http.StatusNotFound, "this agent is that of the node %s, not of %s: ask the agent there, or by kubectl namegate", r.Node, name)
	}
	if r.Snapshot == nil {
		return nil, console.Refuse(http.StatusServiceUnavailable, "the agent of %s is starting: no policies are in force yet; ask again in a moment", name)
	}
	return &policy.Pod{PodRef: policy.NodeRef(name)}, nil
}

// find returns the requested pod, also of another node. The refusal lists the candidates.
func (r *request) find(namespace, name string) (*policy.Pod, error) {
	snap := r.Snapshot
	if snap == nil {
		return nil, console.Refuse(http.StatusServiceUnavailable, "the agent of %s is starting: no policies are in force yet; ask again in a moment", r.Node)
	}
	pods := snap.Pods()
	var found *policy.Pod
	var of []string
	for i := range pods {
		p := &pods[i]
		if p.Name != name || namespace != "" && p.Namespace != namespace {
			continue
		}
		if !slices.Contains(of, p.Namespace) {
			of = append(of, p.Namespace)
		}
		// One name may be that of a finished pod and of the next.
		if found == nil || found.Finished() && (!p.Finished() || p.Local()) || !found.Local() && p.Local() && !p.Finished() {
			found = p
		}
	}
	switch len(of) {
	case 0:
		return nil, r.unknown(pods, namespace, name)
	case 1:
		return found, nil
	}
	return nil, console.Refuse(http.StatusConflict, "pods of that name are in several namespaces: %s; write NAMESPACE/NAME", strings.Join(of, "/"+name+", ")+"/"+name)
}

// local is find of the node's own pods.
func (r *request) local(namespace, name string) (*policy.Pod, error) {
	p, err := r.find(namespace, name)
	if err == nil && !p.Local() {
		err = console.Refuse(http.StatusNotFound, "the pod %s runs on the node %s: ask the agent there, or by kubectl namegate", p, p.NodeName)
	}
	return p, err
}

// unknown says that there is no such pod, and which begin like it.
func (r *request) unknown(pods []policy.Pod, namespace, name string) error {
	const most = 5
	var alike []string
	for i := range pods {
		p := &pods[i]
		if strings.HasPrefix(p.Name, name) && (namespace == "" || p.Namespace == namespace) && !p.Finished() && len(alike) < most {
			alike = append(alike, p.String())
		}
	}
	asked := name
	if namespace != "" {
		asked = namespace + "/" + name
	}
	if len(alike) > 0 {
		return console.Refuse(http.StatusNotFound, "the agent of %s knows no pod %s; is one of these meant: %s?", r.Node, asked, strings.Join(alike, ", "))
	}
	return console.Refuse(http.StatusNotFound, "the agent of %s knows no pod %s; `namegate pods` lists those it knows", r.Node, asked)
}
