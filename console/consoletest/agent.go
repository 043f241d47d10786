package consoletest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Some sees the namespaces that it lists, and with "cluster" and "standard" the cluster policies of a kind.
type Some []string

// Administrator, Tenant and Stranger are viewers with all rights, those of shop, and none.
var (
	Administrator = Some{"", "shop", "pay", "cluster", "standard"}
	Tenant        = Some{"shop"}
	Stranger      = Some{}
)

// Name is that of what it sees.
func (s Some) Name() string { return strings.Join(s, ",") }

// Sees tells whether it lists the namespace.
func (s Some) Sees(_ context.Context, namespace string) (bool, error) {
	return slices.Contains(s, namespace), nil
}

// SeesCluster tells whether it lists "cluster" or "standard".
func (s Some) SeesCluster(_ context.Context, standard bool) (bool, error) {
	return slices.Contains(s, map[bool]string{false: "cluster", true: "standard"}[standard]), nil
}

// Handler answers about the node to one viewer.
func (w *World) Handler(v console.Viewer) http.Handler {
	return console.Handler(source{w}, func(*http.Request) (console.Viewer, error) { return v, nil }, Clock)
}

// Agent is an agent that gives whole answers.
type Agent struct {
	Name    string
	Handler http.Handler
	// Err is in place of an answer.
	Err error
}

// Agent returns the agent of the node under a name, as a viewer reaches it.
func (w *World) Agent(name string, v console.Viewer) *Agent {
	return &Agent{Name: name, Handler: w.Handler(v)}
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
	return console.Received(w.Result())
}

// source is the console's Source of a World.
type source struct{ w *World }

func (s source) Node() string               { return s.w.Name }
func (s source) Status() console.Status     { return s.w.Status }
func (s source) Snapshot() *policy.Snapshot { return s.w.Snap }
func (s source) Policies(namespace string) []v1alpha1.FQDNNetworkPolicy {
	return slices.DeleteFunc(slices.Clone(s.w.Input.Policies), func(p v1alpha1.FQDNNetworkPolicy) bool {
		return namespace != "" && p.Namespace != namespace
	})
}
func (s source) Problems() []policy.Problem {
	if s.w.Snap == nil {
		return nil
	}
	return s.w.Snap.Problems
}
func (s source) NetworkPolicies(namespace string) []*networkingv1.NetworkPolicy {
	return slices.DeleteFunc(slices.Clone(s.w.NetworkPolicies), func(p *networkingv1.NetworkPolicy) bool { return p.Namespace != namespace })
}
func (s source) Remote() ([]*policy.Pod, []string, string) {
	return s.w.Input.Remote, s.w.Input.RemoteNamespaces, s.w.Unread
}
func (s source) Services() map[netip.Addr]*policy.Service { return s.w.Services }
func (s source) CountsByName(netip.Addr) bool             { return true }
func (s source) Failing() string                          { return s.w.Failing }
func (s source) Trouble() map[policy.PodRef][]string      { return s.w.Trouble }
func (s source) Grants(p policy.PodRef) []policy.GrantInfo {
	return slices.DeleteFunc(slices.Clone(s.w.Open), func(o policy.GrantInfo) bool { return o.Pod != p })
}
func (s source) Ended(policy.PodRef, netip.Addr) []policy.GrantInfo { return s.w.Ended }
func (s source) Denied(p policy.PodRef) []audit.Flow                { return s.w.Flows[p] }
func (s source) Seen(p policy.PodRef, a netip.Addr) []recent.Sighting {
	return slices.DeleteFunc(s.SeenByAnybody(a), func(s recent.Sighting) bool { return s.Pod != p })
}
func (s source) SeenByAnybody(a netip.Addr) []recent.Sighting {
	return slices.DeleteFunc(slices.Clone(s.w.Seen), func(s recent.Sighting) bool { return s.Address != a })
}
func (s source) Asked(_ policy.PodRef, n fqdn.Name) (recent.Decision, bool) {
	d, ok := s.w.Asked[n]
	return d, ok
}
func (s source) LedBy(policy.PodRef, fqdn.Name) (via, aliases []fqdn.Name)     { return nil, nil }
func (s source) DeniesResolver(policy.PodRef, netip.Addr) (bool, *policy.Rule) { return false, nil }
func (s source) Guard() func(fqdn.Name, netip.Addr) string {
	return func(_ fqdn.Name, a netip.Addr) string {
		if a.IsPrivate() {
			return "pod"
		}
		return ""
	}
}
func (s source) Inside(netip.Addr) string { return "" }
func (s source) Domain() fqdn.Name        { n, _ := fqdn.ParseName("cluster.local"); return n }
func (s source) Resolvers() []netip.Addr  { return []netip.Addr{netip.MustParseAddr("10.96.0.10")} }
func (s source) Recent() []byte           { return s.w.Recent }
func (s source) Complete(namespace string) (time.Duration, bool) {
	d, known := s.w.Complete[namespace]
	return d, known
}
func (s source) Follow() console.Follower {
	if s.w.Follow == nil {
		return silence{}
	}
	return s.w.Follow()
}

// silence is a log to which nothing comes.
type silence struct{}

func (silence) Next(ctx context.Context) ([]byte, uint64, error) {
	<-ctx.Done()
	return nil, 0, ctx.Err()
}
func (silence) Close() {}
