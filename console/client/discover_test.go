package client

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// refuse makes the API server refuse a verb on a resource.
func refuse(api *accesstest.API, verb, resource string, err error) {
	api.PrependReactor(verb, resource, func(clienttest.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x", errors.New("no"))
}

// ended is a pod that has done its work.
func ended(p *corev1.Pod) *corev1.Pod {
	p.Status.Phase = corev1.PodSucceeded
	return p
}

func nodesOf(agents []Agent) (out []string) {
	for _, a := range agents {
		out = append(out, a.Node())
	}
	return out
}

var anAddress = netip.MustParseAddrPort("192.0.2.1:9954")

// TestOfPod: the way from a pod to its agent, and each place where it ends.
func TestOfPod(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(*accesstest.API)
		pod    string
		code   int
		text   string
	}{
		{name: "found", pod: "cart"},
		{name: "no such pod", pod: "kart", code: console.ExitUnknown, text: "there is no pod shop/kart; kubectl get pods -n shop lists those there are"},
		{name: "on no node", pod: "waiting", code: console.ExitUnknown, text: "is on no node yet, so no agent knows it; kubectl describe pod -n shop waiting"},
		{name: "a node without an agent", pod: "lonely", code: console.ExitUnreachable, text: "node n9 has no agent that could be asked; kubectl -n namegate-system get pods"},
		{name: "not to be read", pod: "cart", before: func(a *accesstest.API) { refuse(a, "get", "pods", forbidden("pods")) }, code: console.ExitForbidden, text: "--node NODE"},
		{name: "Leases not to be read", pod: "cart", before: func(a *accesstest.API) { refuse(a, "get", "leases", forbidden("leases")) }, code: console.ExitForbidden, text: "console.readers"},
		{name: "not logged in", pod: "cart", before: func(a *accesstest.API) { refuse(a, "get", "pods", apierrors.NewUnauthorized("no")) }, code: console.ExitForbidden, text: "log in again"},
		{name: "API server away", pod: "cart", before: func(a *accesstest.API) { refuse(a, "get", "pods", accesstest.ErrGone) }, code: console.ExitUnreachable, text: "read pod shop/cart: the API server is away"},
		{name: "API server away later", pod: "cart", before: func(a *accesstest.API) { refuse(a, "get", "leases", accesstest.ErrGone) }, code: console.ExitUnreachable, text: "read where the agents are: the API server is away"},
		{name: "of another version", pod: "strange", code: console.ExitUnreachable, text: "of another version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := accesstest.NewAPI(accesstest.Pod("shop", "cart", "n1"), accesstest.Pod("shop", "waiting", ""), accesstest.Pod("shop", "lonely", "n9"), accesstest.Pod("shop", "strange", "n3"))
			accesstest.PublishAt(t, api, "n1", entry.Pin{1}, anAddress)
			accesstest.PublishAt(t, api, "n3", entry.Pin{3}, anAddress)
			l := accesstest.Lease(t, api, entry.LeaseOf("n3"))
			l.Annotations["n3"+entry.Suffix] = "something else"
			fatal.If(t, api.Tracker().Update(leases, l, accesstest.Namespace))
			if c.before != nil {
				c.before(api)
			}
			a, err := cluster(api, "").OfPod(t.Context(), "shop", c.pod)
			if c.code == 0 {
				if err != nil || a.Node() != "n1" {
					t.Errorf("got %v %v", a, err)
				}
				return
			}
			if console.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got exit code %d, %v; want %d, %s", console.ExitCode(err), err, c.code, c.text)
			}
		})
	}
}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// TestOfNamespace: the nodes with living pods of it, with or without an agent; all
// where that is not known.
func TestOfNamespace(t *testing.T) {
	api := accesstest.NewAPI(accesstest.Pod("shop", "cart", "n1"), accesstest.Pod("shop", "cart-2", "n1"), accesstest.Pod("shop", "web", "n2"), accesstest.Pod("shop", "lonely", "n9"),
		ended(accesstest.Pod("shop", "job", "n4")), accesstest.Pod("shop", "waiting", ""), accesstest.Pod("bank", "till", "n4"))
	for _, n := range []string{"n1", "n2", "n4"} {
		accesstest.PublishAt(t, api, n, entry.Pin{1}, anAddress)
	}
	c := cluster(api, "")
	agents, err := c.OfNamespace(t.Context(), "shop")
	fatal.If(t, err)
	diff.Error(t, []string{"n1", "n2", "n9"}, nodesOf(agents), "nodes")
	_, err = agents[2].Ask(t.Context(), "/v1/pods", nil)
	var away *console.Unreachable
	if !errors.As(err, &away) || !strings.Contains(err.Error(), "node n9 has no agent") {
		t.Errorf("n9 says %v", err)
	}
	all := []string{"n1", "n2", "n4"}
	agents, err = c.OfNamespace(t.Context(), "empty")
	fatal.If(t, err)
	diff.Error(t, all, nodesOf(agents), "of a namespace without pods")
	refuse(api, "list", "pods", forbidden("pods"))
	agents, err = c.OfNamespace(t.Context(), "shop")
	fatal.If(t, err)
	diff.Error(t, all, nodesOf(agents), "without the right to list")
	refuse(api, "list", "pods", accesstest.ErrGone)
	if _, err = c.OfNamespace(t.Context(), "shop"); console.ExitCode(err) != console.ExitUnreachable {
		t.Errorf("without the API server: %v", err)
	}
}

// TestAll: all published agents; others' annotations, and annotations in a Lease that is
// not the node's, are ignored.
func TestAll(t *testing.T) {
	api := accesstest.NewAPI()
	c := cluster(api, "")
	if _, err := c.All(t.Context()); console.ExitCode(err) != console.ExitUnreachable || !strings.Contains(err.Error(), "--agents names another") {
		t.Errorf("without agents: %v", err)
	}
	var want []string
	for i := range 60 {
		n := "node-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		accesstest.PublishAt(t, api, n, entry.Pin{1}, anAddress)
		want = append(want, n)
	}
	slices.Sort(want)
	l := accesstest.Lease(t, api, entry.LeaseOf("node-aa"))
	l.Annotations["note"] = "x"
	for _, deleted := range []string{"stray-a", "stray-b", "stray-c", "stray-d"} {
		if entry.LeaseOf(deleted) != l.Name {
			l.Annotations[deleted+entry.Suffix] = l.Annotations["node-aa"+entry.Suffix]
		}
	}
	fatal.If(t, api.Tracker().Update(leases, l, accesstest.Namespace))
	agents, err := c.All(t.Context())
	fatal.If(t, err)
	diff.Error(t, want, nodesOf(agents), "agents")
	c.login.Address = "127.0.0.1:9954"
	if _, err := c.All(t.Context()); console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), "--node") {
		t.Errorf("one address for many: %v", err)
	}
	refuse(api, "get", "leases", forbidden("leases"))
	if _, err := c.All(t.Context()); statusOf(err) != http.StatusForbidden || !strings.Contains(err.Error(), "namegate-console-0 to namegate-console-f in namespace namegate-system") {
		t.Errorf("without the right: %v", err)
	}
}

// TestUnreachable: what to do where an agent does not answer.
func TestUnreachable(t *testing.T) {
	api := accesstest.NewAPI()
	accesstest.PublishAt(t, api, "local", entry.Pin{1})
	accesstest.PublishAt(t, api, "closed", entry.Pin{1}, netip.MustParseAddrPort("127.0.0.1:1"))
	for node, want := range map[string]string{
		"local":  "kubectl -n namegate-system port-forward POD 9954, with the agent's pod on that node) and add --node local --address 127.0.0.1:9954",
		"closed": "no program listens at the address of the agent of node closed; is it running?",
	} {
		a, err := cluster(api, "").OfNode(t.Context(), node)
		fatal.If(t, err)
		if _, err = a.Ask(t.Context(), "/v1/status", nil); console.ExitCode(err) != console.ExitUnreachable || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", node, err)
		}
	}
	c := cluster(api, "")
	c.login.Address = "nonsense at all:x"
	a, err := c.OfNode(t.Context(), "closed")
	fatal.If(t, err)
	if _, err = a.Ask(t.Context(), "/v1/status", nil); console.ExitCode(err) != console.ExitUsage {
		t.Errorf("a bad --address: %v", err)
	}
}
