package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// PodName reads how a pod is named: NAMESPACE/NAME, or NAME with the namespace
// beside it, "" for any. Both namespaces must be the same.
func PodName(namespace, pod string) (ns, name string, err error) {
	ns, name, found := strings.Cut(pod, "/")
	switch {
	case !found:
		ns, name = namespace, pod
	case namespace != "" && ns != namespace:
		return "", "", fmt.Errorf("the pod %s is not in the namespace %s; leave one of them out", pod, namespace)
	case ns == "":
		return "", "", fmt.Errorf("%q is no pod; write NAMESPACE/NAME or NAME", pod)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is no pod; write NAMESPACE/NAME or NAME", pod)
	}
	return ns, name, nil
}

// scope reads the namespace and the pod of a request, "" for all, and refuses a caller
// who may not see them.
func (r *request) scope() (namespace, pod string, err error) {
	q := r.URL.Query()
	if namespace = q.Get("namespace"); q.Get("pod") != "" {
		if namespace, pod, err = PodName(namespace, q.Get("pod")); err != nil {
			return "", "", Refuse(http.StatusBadRequest, "%v", err)
		}
	}
	return namespace, pod, r.may(namespace)
}

// find returns the requested pod, also of another node. The refusal lists the candidates.
func (c *console) find(namespace, name string) (*policy.Pod, error) {
	snap := c.source.Snapshot()
	if snap == nil {
		return nil, Refuse(http.StatusServiceUnavailable, "the agent of %s is starting: no policies are in force yet; ask again in a moment", c.source.Node())
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
		return nil, c.unknown(pods, namespace, name)
	case 1:
		return found, nil
	}
	return nil, Refuse(http.StatusConflict, "pods of that name are in several namespaces: %s; write NAMESPACE/NAME", join(of, "/"+name))
}

// local is find of the node's own pods.
func (c *console) local(namespace, name string) (*policy.Pod, error) {
	p, err := c.find(namespace, name)
	if err == nil && !p.Local() {
		err = Refuse(http.StatusNotFound, "the pod %s runs on the node %s: ask the agent there, or by kubectl namegate", p, p.NodeName)
	}
	return p, err
}

// unknown says that there is no such pod, and which begin like it.
func (c *console) unknown(pods []policy.Pod, namespace, name string) error {
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
		return Refuse(http.StatusNotFound, "the agent of %s knows no pod %s; is one of these meant: %s?", c.source.Node(), asked, strings.Join(alike, ", "))
	}
	return Refuse(http.StatusNotFound, "the agent of %s knows no pod %s; `namegate pods` lists those it knows", c.source.Node(), asked)
}

// join writes words with what follows each.
func join(words []string, after string) string { return strings.Join(words, after+", ") + after }
