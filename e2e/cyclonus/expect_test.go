package cyclonus

import (
	"fmt"
	"strings"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/mattfenwick/cyclonus/pkg/worker"

	"github.com/namegate/namegate/e2e/lab"
)

// asked is a probe with its pods and what has to become of it.
type asked struct {
	*worker.Request
	from, to *sited
	want     lab.Outcome
}

// ask reads a request of cyclonus. The outcome is what its simulation says of both directions: rules for
// egress deny with an answer, those for ingress without one.
func (c *cluster) ask(r *worker.Request) (*asked, error) {
	names := strings.Split(r.Key, "/") // from, container, to, container, protocol, port
	if len(names) != 8 {
		return nil, fmt.Errorf("key %q is not known", r.Key)
	}
	from, to := names[0]+"/"+names[1], names[3]+"/"+names[4]
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &asked{Request: r, from: c.ground.pods[from], to: c.ground.pods[to], want: lab.Answered}
	if q.from == nil || q.to == nil {
		return nil, missing("pod", r.Key)
	}
	t := &matcher.Traffic{Source: c.peer(from), Destination: c.peer(to), ResolvedPort: r.Port, Protocol: r.Protocol}
	for _, container := range c.pods[to].Spec.Containers {
		for _, p := range container.Ports {
			if int(p.ContainerPort) == r.Port && p.Protocol == r.Protocol {
				t.ResolvedPortName = p.Name
			}
		}
	}
	switch says := c.says.IsTrafficAllowed(t); {
	case !says.Egress.IsAllowed():
		q.want = lab.Refused
	case !says.Ingress.IsAllowed():
		q.want = lab.Silent
	}
	return q, nil
}

// peer is a pod as cyclonus gets it.
func (c *cluster) peer(key string) *matcher.TrafficPeer {
	p := c.pods[key]
	return &matcher.TrafficPeer{IP: p.Status.PodIP, Internal: &matcher.InternalPeer{
		PodLabels: p.Labels, NamespaceLabels: c.namespaces[p.Namespace].Labels, Namespace: p.Namespace,
	}}
}
