package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/webtest"
)

// nodeOf returns a node with a pod of shop and one of pay, whose names end with its number.
func nodeOf(t *testing.T, number int) *webtest.Node {
	t.Helper()
	in := compile.Input{Policies: slices.Delete(consoletest.New("").Input.Policies, 1, 2)} // without the one that audits
	for i, namespace := range []string{"shop", "pay"} {
		in.Pods = append(in.Pods, consoletest.Pod(namespace, fmt.Sprintf("cart-%d", number), fmt.Sprintf("10.1.%d.%d", number, 10+i), nil, "app=cart"))
	}
	n := webtest.NewNode(fmt.Sprintf("node-%d", number), in, time.Now)
	var grants []policy.GrantInfo
	for i := range in.Pods {
		grants = append(grants, policy.GrantInfo{
			Pod: in.Pods[i].PodRef, Addr: netip.MustParseAddr("192.0.2.10"), Ports: "tcp/443", Name: policytest.Name("www.example.org"),
			Until: time.Now().Add(time.Hour), By: "shop/base www.example.org",
		})
	}
	n.SetGrants(grants...)
	return n
}

// dns is a decision about a pod.
func dns(pod, name, verdict string) audit.Line {
	namespace, pod, _ := strings.Cut(pod, "/")
	return audit.Line{
		Kind: audit.KindDNS, Time: time.Now(), Verdict: verdict, Protocol: "udp", Pod: audit.LinePod{Namespace: namespace, Name: pod, Workload: "app=cart", IP: "10.1.0.10"},
		Question: &audit.LineQuestion{Name: name, Type: "A", Class: "IN"},
		Matches:  []audit.LineMatch{{Policy: "shop/base", Path: "spec.egress[0].matches[0]", Match: "www.example.org"}},
	}
}

// flow is a denied connection of a pod to an address with a name.
func flow(pod, address, name string) audit.Line {
	namespace, pod, _ := strings.Cut(pod, "/")
	return audit.Line{
		Kind: audit.KindFlow, Time: time.Now(), Verdict: "denied", Protocol: "tcp", Pod: audit.LinePod{Namespace: namespace, Name: pod, Workload: "app=cart", IP: "10.1.0.10"},
		Destination: &audit.LineDestination{Address: address, Port: 443}, Names: []audit.LineName{{Name: name, Asked: time.Now()}},
		Reason: audit.ReasonUnmatched, Policies: []string{"shop/base"}, Count: 1,
	}
}

// cluster is what the page asks: agents that come and go.
type cluster struct {
	viewer serve.Viewer
	mu     sync.Mutex // of what follows
	nodes  []*webtest.Node
	err    error // of finding
}

// set changes which agents are found.
func (c *cluster) set(err error, nodes ...*webtest.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.nodes = err, nodes
}

func (c *cluster) find(context.Context) (out []client.Agent, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		out = append(out, n.Agent(c.viewer))
	}
	return out, c.err
}

// about asks all agents, as where the pod's node is not known.
func (c *cluster) about(ctx context.Context, subject string) ([]client.Agent, url.Values, error) {
	agents, err := c.find(ctx)
	return agents, about(subject), err
}

// about is the question's subject.
func about(subject string) url.Values {
	if node, is := strings.CutPrefix(subject, "node/"); is {
		return url.Values{"node": {node}}
	}
	return url.Values{"pod": {subject}}
}

// opened is a server and the end of its feed, in a bubble of synctest.
type opened struct {
	*server
	handler http.Handler
	stop    func()
}

// open follows the agents until the test ends.
func (c *cluster) open(t *testing.T, namespace string) *opened {
	t.Helper()
	return openWith(t, &Options{
		Context: "kind", Namespace: namespace, Version: "v1", Agents: c.find, About: c.about, Now: time.Now, After: time.After,
		Guard: func(fqdn.Name, netip.Addr) string { return "" },
	})
}

func openWith(t *testing.T, options *Options) *opened {
	t.Helper()
	s := newServer(options)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.feed.run(ctx)
	}()
	o := &opened{s, s.handler(), func() { stop(); <-ended }}
	t.Cleanup(o.stop)
	synctest.Wait()
	return o
}

// get decodes an answer, and returns the message of a problem.
func (o *opened) get(t *testing.T, path string, into any) (status int, message string) {
	t.Helper()
	w := httptest.NewRecorder()
	o.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return w.Code, ""
	}
	var p console.Refusal
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Message == "" {
		t.Errorf("%s: %d without a message: %s", path, w.Code, w.Body)
	}
	return w.Code, p.Message
}

// states are the agents as "node state".
func (o *opened) states() (out []string) {
	for _, a := range o.feed.agents().Agents {
		out = append(out, a.Node+" "+a.State)
	}
	return out
}

// names are the names of lines, newest first.
func (o *opened) names(t *testing.T, query string) (out []string) {
	t.Helper()
	var lines Lines
	if status, message := o.get(t, "/api/lines?"+query, &lines); message != "" {
		t.Errorf("%s: %d %s", query, status, message)
	}
	for _, l := range lines.Lines {
		if s := l.Line.Source; s != nil {
			out = append(out, "from "+s.Address)
		} else if l.Line.Kind == audit.KindFlow {
			out = append(out, l.Line.Names[0].Name)
		} else {
			out = append(out, l.Line.Question.Name)
		}
	}
	return out
}

var errNotFound = errors.New("the API server is away")
