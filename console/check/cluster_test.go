package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// served is a cluster of testdata/cluster.yaml.
type served struct {
	t *testing.T
	// refused has kinds, or kinds of a namespace ("pods/shop"), and the status of their refusal.
	refused map[string]int
	asked   []string
}

var resources = map[string]string{
	"FQDNNetworkPolicy": "fqdnnetworkpolicies", "ClusterFQDNNetworkPolicy": "clusterfqdnnetworkpolicies", "NodeNetworkPolicy": "nodenetworkpolicies", "NetworkPolicy": "networkpolicies", "Pod": "pods",
	"Service": "services", "Namespace": "namespaces", "Node": "nodes", "CronJob": "cronjobs",
}

func (s *served) List(_ context.Context, kind schema.GroupVersionResource, namespace string, each func(*unstructured.Unstructured) error) error {
	s.asked = append(s.asked, strings.Trim(kind.Resource+"/"+namespace, "/"))
	for _, key := range []string{kind.Resource, kind.Resource + "/" + namespace} {
		if status := s.refused[key]; status != 0 {
			return console.Refuse(status, "you may not list %s", kind.GroupResource())
		}
	}
	text, err := os.ReadFile("testdata/cluster.yaml")
	fatal.If(s.t, err)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		fatal.If(s.t, yaml.Unmarshal([]byte(doc), &u.Object))
		if resources[u.GetKind()] != kind.Resource || namespace != "" && u.GetNamespace() != namespace {
			continue
		}
		if err := each(u); err != nil {
			return err
		}
	}
	return nil
}

// clusterLog is a log of an hour, from 11:00 to 12:05.
func clusterLog(m *Manifests) *Log {
	l := NewLog(m)
	start := time.Date(2026, 5, 1, 11, 0, 0, 0, time.UTC)
	for i, line := range []struct{ name, address string }{
		{"api.example.org", "192.0.2.10"}, {"paste.example.net", "192.0.2.10"}, {"db.data.svc.cluster.local", "198.51.100.10"},
		{"peers.data.svc.cluster.local", "192.0.2.20"}, {"db-0.peers.data.svc.cluster.local", "192.0.2.20"}, {"cache.data.svc.cluster.local", ""},
	} {
		d := dnsLine(line.name, line.address)
		if line.address == "" {
			d.Answers = nil
			d.Rcode = "NXDOMAIN"
		}
		d.Time = start.Add(time.Duration(i) * time.Minute)
		l.Add(d)
	}
	l.Complete("node-1", start, start.Add(65*time.Minute))
	return l
}

// TestCluster: what is found in a cluster, in one namespace and in files beside it.
func TestCluster(t *testing.T) {
	for _, c := range []struct {
		name       string
		file       string
		namespaces []string
		refused    map[string]int
		log        bool
	}{
		{name: "all", log: true},
		{name: "namespace", namespaces: []string{"shop"}, log: true},
		{name: "rights", namespaces: []string{"shop"}, refused: map[string]int{
			"pods": http.StatusForbidden, "services/data": http.StatusForbidden, "clusterfqdnnetworkpolicies": http.StatusForbidden, "clusternetworkpolicies": http.StatusNotFound,
		}},
		{name: "files", file: "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: lost, namespace: shop}\nspec:\n" +
			"  podSelector: {matchLabels: {app: kart}}\n  egress:\n  - matches: [{name: db.data.svc.cluster.local}]\n    ports: [{port: 80}]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{ClusterDomain: "cluster.local"}
			m := New()
			if c.file != "" {
				fatal.If(t, m.Add("shop.yaml", []byte(c.file)))
				c.namespaces = m.Spaces()
			}
			fatal.If(t, m.ReadCluster(t.Context(), &served{t: t, refused: c.refused}, c.namespaces, o))
			if c.log {
				o.Log = clusterLog(m)
			}
			var b strings.Builder
			fatal.If(t, m.Report(m.Lint(o), nil).Write(&b, ""))
			golden.Compare(t, "cluster."+c.name, b.String())
		})
	}
}

// TestClusterNodeOfFile: a Node of a file counts in place of the cluster's, as other objects do.
func TestClusterNodeOfFile(t *testing.T) {
	const policy = `apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata: {name: edges}
spec: {nodeSelector: {matchLabels: {role: edge}}, priority: 7, egress: [{action: Accept, matches: [{name: e.example.org}]}]}
`
	for _, c := range []struct {
		node string
		want bool
	}{{"", true}, {"---\n{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {role: edge}}}\n", false}} {
		o := Options{ClusterDomain: "cluster.local"}
		m := New()
		fatal.If(t, m.Add("edges.yaml", []byte(policy+c.node)))
		fatal.If(t, m.ReadCluster(t.Context(), &served{t: t}, m.Spaces(), o))
		got := slices.ContainsFunc(m.Lint(o), func(f Finding) bool { return f.Reason == SelectsNothing })
		diff.Equal(t, c.want, got, "selects nothing, with the node", c.node)
	}
}

// TestClusterTie: a cluster policy of a file that ties with the cluster's team-b is found, whichever comes first.
func TestClusterTie(t *testing.T) {
	const text = `apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: NAME}
spec: {tier: Admin, priority: 100, subject: {pods: {namespaceSelector: {}, podSelector: {}}}, egress: [{action: Deny, networks: [0.0.0.0/0]}]}
`
	for name, comes := range map[string]string{"team-a": "last", "team-c": "first"} {
		o := Options{ClusterDomain: "cluster.local"}
		m := New()
		fatal.If(t, m.Add("team.yaml", []byte(strings.Replace(text, "NAME", name, 1))))
		fatal.If(t, m.ReadCluster(t.Context(), &served{t: t}, m.Spaces(), o))
		findings := slices.DeleteFunc(m.Lint(o), func(f Finding) bool { return f.Reason != PriorityTie })
		if len(findings) != 1 || findings[0].File != "team.yaml" || findings[0].Object != "clusterpolicy "+name ||
			!strings.HasPrefix(findings[0].Message, "clusterpolicy team-b has tier Admin and priority 100 too, and comes "+comes+" by its name; ") {
			t.Errorf("%s: %+v", name, findings)
		}
	}
}

// TestClusterRequests: workloads are read only where a policy selects nothing, and of a namespace
// nothing else's objects but the Services of its names.
func TestClusterRequests(t *testing.T) {
	s := &served{t: t}
	fatal.If(t, New().ReadCluster(t.Context(), s, []string{"data"}, Options{ClusterDomain: "cluster.local"}))
	want := []string{"fqdnnetworkpolicies/data", "clusterfqdnnetworkpolicies", "nodenetworkpolicies", "clusternetworkpolicies", "networkpolicies/data", "pods/data", "services/data", "namespaces"}
	diff.Error(t, want, s.asked)
	s = &served{t: t}
	fatal.If(t, New().ReadCluster(t.Context(), s, []string{"shop"}, Options{ClusterDomain: "cluster.local"}))
	for _, kind := range []string{"services/data", "cronjobs/shop", "deployments/shop"} {
		if !slices.Contains(s.asked, kind) {
			t.Errorf("%s was not asked for: %q", kind, s.asked)
		}
	}
}

// TestClusterRefused: there is nothing to check without the policies, and an API server that fails is an error.
func TestClusterRefused(t *testing.T) {
	for _, c := range []struct {
		refused map[string]int
		code    int
		text    string
	}{
		{map[string]int{"fqdnnetworkpolicies": http.StatusForbidden}, console.ExitForbidden, "you may not list fqdnnetworkpolicies.namegate.io in namespace shop; ask an administrator for this permission (kubectl auth can-i list fqdnnetworkpolicies.namegate.io -n shop)"},
		{map[string]int{"fqdnnetworkpolicies": http.StatusNotFound}, console.ExitUnknown, "is Namegate installed in this cluster?"},
		{map[string]int{"pods": http.StatusUnauthorized}, console.ExitForbidden, "pods"},
	} {
		err := New().ReadCluster(t.Context(), &served{t: t, refused: c.refused}, []string{"shop"}, Options{ClusterDomain: "cluster.local"})
		if console.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: exit code %d, %v", c.refused, console.ExitCode(err), err)
		}
	}
	gone := errors.New("gone")
	diff.Is(t, gone, New().ReadCluster(t.Context(), goneAPI{gone}, nil, Options{}))
}

type goneAPI struct{ error }

func (g goneAPI) List(context.Context, schema.GroupVersionResource, string, func(*unstructured.Unstructured) error) error {
	return g.error
}

// TestClusterLogIsPartial: where lines of a node are missing, no name counts as unresolved.
func TestClusterLogIsPartial(t *testing.T) {
	o := Options{ClusterDomain: "cluster.local"}
	m := New()
	fatal.If(t, m.ReadCluster(t.Context(), &served{t: t}, []string{"shop"}, o))
	o.Log = clusterLog(m)
	o.Log.Partial()
	reasons := map[string]bool{}
	for _, f := range m.Lint(o) {
		reasons[f.Reason] = true
	}
	if reasons[Unresolved] || !reasons[SharedAddress] {
		t.Errorf("%v", reasons)
	}
}

// TestClusterLogIsAsLongAsAgentsSay: lines of a node whose clock is wrong make the time for which
// the logs are complete neither longer nor shorter.
func TestClusterLogIsAsLongAsAgentsSay(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 5, 0, 0, time.UTC)
	for _, c := range []struct {
		complete []time.Duration
		skew     time.Duration
		want     string
	}{
		{[]time.Duration{3*time.Hour + 12*time.Minute + 59*time.Second, 4 * time.Hour}, 0, "in the last 3h12m, the time"},
		{[]time.Duration{4 * time.Hour, time.Hour}, 24 * time.Hour, "in the last 1h0m, the time"},
		{[]time.Duration{minSpan, 4 * time.Hour}, -24 * time.Hour, "in the last 10m, the time"},
		{[]time.Duration{4 * time.Hour, minSpan - time.Second}, 24 * time.Hour, "the logs of all agents are complete for the last 9m only, and 10m are necessary: the agent of node node-2 started then"},
		{[]time.Duration{30 * time.Second}, -24 * time.Hour, "for the last 30s only, and 10m are necessary: the agent of node node-1 started then"},
	} {
		o := Options{ClusterDomain: "cluster.local"}
		m := New()
		fatal.If(t, m.ReadCluster(t.Context(), &served{t: t}, []string{"shop"}, o))
		o.Log = NewLog(m)
		line := dnsLine("api.example.org", "192.0.2.10")
		line.Time = now.Add(c.skew)
		o.Log.Add(line)
		for i, d := range c.complete {
			o.Log.Complete(fmt.Sprintf("node-%d", i+1), now.Add(-d), now)
		}
		report := m.Report(m.Lint(o), nil)
		found := 0
		for _, f := range report.Findings {
			if f.Reason == Unresolved && strings.Contains(f.Message, c.want) {
				found++
			}
		}
		for _, u := range report.Unchecked {
			if strings.Contains(u.String(), "(Unresolved)") && strings.Contains(u.Why, c.want) {
				found++
			}
		}
		if found == 0 {
			t.Errorf("%v, skew %v: %+v, %+v", c.complete, c.skew, report.Findings, report.Unchecked)
		}
	}
}

// TestMetadataIsGuarded: the guard closes the address of each name, until the line that the
// finding says is written.
func TestMetadataIsGuarded(t *testing.T) {
	for _, name := range metadataNames {
		n, err := fqdn.ParseName(name)
		fatal.If(t, err)
		for line, want := range map[string]string{"": "metadata", "rebind allow " + name + " " + metadataAddress: ""} {
			c, err := corefile.Parse("Corefile", ". {\n    forward . 192.0.2.53\n    "+line+"\n}\n")
			fatal.If(t, err)
			diff.Equal(t, want, rebind.New(c, rebind.Addresses{}).Blocked(n, netip.MustParseAddr(metadataAddress), nil), name, "with", line)
		}
	}
}
