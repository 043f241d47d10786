package consoletest

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/policytest"
)

// Some sees the namespaces that it lists, and with "cluster", "standard" and "nodes" the cluster policies of a kind.
type Some []string

// Administrator, Tenant and Unprivileged are viewers with all rights, those of shop, and none.
var (
	Administrator = Some{"", "shop", "pay", "cluster", "standard", "nodes"}
	Tenant        = Some{"shop"}
	Unprivileged  = Some{}
)

// Name is that of what it sees.
func (s Some) Name() string { return strings.Join(s, ",") }

// May tells whether it lists the namespace, or the cluster policies of the kind.
func (s Some) May(_ context.Context, r serve.Right) (bool, error) {
	word := map[serve.Right]string{serve.ClusterPolicies(""): "cluster", serve.ClusterPolicies(cnp.ID("")): "standard", serve.ClusterPolicies(nnp.ID("")): "nodes"}[r]
	return slices.Contains(s, cmp.Or(word, r.Namespace)), nil
}

// Handler answers about the node to one viewer.
func (w *World) Handler(v serve.Viewer) http.Handler {
	return serve.Handler(w.State, func(*http.Request) (serve.Viewer, error) { return v, nil }, Clock)
}

// Agent is an agent that gives whole answers.
type Agent struct {
	Name    string
	Handler http.Handler
	// Err is in place of an answer.
	Err error
}

// Agent returns the agent of the node under a name, as a viewer reaches it.
func (w *World) Agent(name string, v serve.Viewer) *Agent {
	return &Agent{Name: name, Handler: w.Handler(v)}
}

// Away is an agent that cannot be reached.
func Away(name string) *Agent { return &Agent{Name: name, Err: ErrAway} }

// Fixed is an agent with one answer to all questions.
func Fixed(body string) *Agent {
	return &Agent{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })}
}

// Node returns the name.
func (a *Agent) Node() string { return a.Name }

// Ask asks the handler.
func (a *Agent) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if a.Err != nil {
		return nil, a.Err
	}
	w := httptest.NewRecorder()
	a.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path+"?"+query.Encode(), nil))
	return client.Received(w.Result())
}

// State is what the agent of the node knows.
func (w *World) State() *serve.State {
	s := &serve.State{
		Node: w.Name, Snapshot: w.Snap, Policies: w.Input.Policies, NetworkPolicies: w.NetworkPolicies,
		Remote: w.Input.Remote, RemoteNamespaces: w.Input.RemoteNamespaces, Unread: w.Unread, Services: w.Services, Failing: w.Failing,
		Domain: policytest.Name("cluster.local"), Resolvers: func() []netip.Addr { return policytest.Addrs("10.96.0.10") },
		Blocked: func(_ fqdn.Name, a netip.Addr) string {
			if a.IsPrivate() {
				return "pod"
			}
			return ""
		},
		Own: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.1.0.1") }, Nodes: w.Input.Nodes,
		Inside: func(netip.Addr) string { return "" }, CountsByName: func(netip.Addr) bool { return true },
		Status: func() console.Status { return w.Status }, Trouble: func() map[policy.PodRef][]string { return w.Trouble },
		Live: live{w}, Engine: func(policy.PodRef) *explain.Engine { return w.Engine },
	}
	if w.Snap != nil {
		s.Problems = w.Snap.Problems
	}
	if !w.NoLog {
		s.Log = worldLog{w}
	}
	return s
}

// live is the serve.Live of a World.
type live struct{ w *World }

func (l live) Grants(p policy.PodRef) []policy.GrantInfo {
	return slices.DeleteFunc(slices.Clone(l.w.Open), func(o policy.GrantInfo) bool { return o.Pod != p })
}
func (l live) Ended(policy.PodRef, netip.Addr) []policy.GrantInfo { return l.w.Ended }
func (l live) Denied(p policy.PodRef) []audit.Flow                { return l.w.Flows[p] }
func (l live) Seen(a netip.Addr) []recent.Sighting {
	return slices.DeleteFunc(slices.Clone(l.w.Seen), func(s recent.Sighting) bool { return s.Address != a })
}
func (l live) Asked(_ policy.PodRef, n fqdn.Name) (recent.Decision, bool) {
	d, ok := l.w.Asked[n]
	return d, ok
}
func (live) LedBy(policy.PodRef, fqdn.Name) (via, aliases []fqdn.Name)     { return nil, nil }
func (live) DeniesResolver(policy.PodRef, netip.Addr) (bool, *policy.Rule) { return false, nil }

// worldLog is the serve.Log of a World.
type worldLog struct{ w *World }

func (l worldLog) Complete(namespace string) (time.Duration, bool) {
	d, known := l.w.Complete[namespace]
	return d, known
}
func (l worldLog) Follow() (recent []byte, coming serve.Follower) {
	if l.w.Follow == nil {
		return l.w.Recent, silence{}
	}
	return l.w.Recent, l.w.Follow()
}

// silence is a log to which nothing comes.
type silence struct{}

func (silence) Next(ctx context.Context) ([]byte, uint64, error) {
	<-ctx.Done()
	return nil, 0, ctx.Err()
}
func (silence) Close() {}
