package kube

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// storeTest counts the changes that a store of namespaces told.
type storeTest struct {
	*store[namespaceEntry]
	changes int
}

func newLife() *storeTest {
	l := &storeTest{}
	l.store = newStore(func() { l.changes++ }, readNamespace)
	return l
}

// names takes the entries, and returns their names.
func (l *storeTest) names() (names string, news bool) {
	news, _ = l.take()
	for _, e := range l.taken {
		names += " " + e.name + e.labels["v"]
	}
	return strings.TrimSpace(names), news
}

func space(name, v string) *corev1.Namespace { return aNamespace(name, map[string]string{"v": v}) }

// TestStore goes through the life of a store. After each step it has the step's entries,
// and has reported a change or not.
func TestStore(t *testing.T) {
	l := newLife()
	if l.synced() {
		t.Error("filled from the start")
	}
	for i, step := range []struct {
		do    func() error
		holds string
		news  bool
	}{
		{func() error {
			return l.Replace([]any{space("b", "1"), space("a", "1"), "no object", aNode("x", "192.0.2.1")}, "")
		}, "a1 b1", true},
		{func() error { return l.Replace([]any{space("a", "1"), space("b", "1")}, "") }, "a1 b1", false},
		{func() error { return l.Add(space("c", "1")) }, "a1 b1 c1", true},
		{func() error { return l.Add(space("c", "1")) }, "a1 b1 c1", false},
		{func() error { return l.Update(space("c", "2")) }, "a1 b1 c2", true},
		{func() error { return l.Update(space("d", "1")) }, "a1 b1 c2 d1", true},
		{func() error { return l.Delete(space("d", "?")) }, "a1 b1 c2", true},
		{func() error { return l.Delete(space("d", "?")) }, "a1 b1 c2", false},
		{func() error { return l.Update("no object") }, "a1 b1 c2", false},
		{func() error { return l.Delete(nil) }, "a1 b1 c2", false},
		{func() error { return l.Resync() }, "a1 b1 c2", false},
		{func() error { return l.Replace([]any{space("a", "1"), space("c", "2")}, "") }, "a1 c2", true},
		{func() error { return l.Replace([]any{space("a", "1"), space("e", "2")}, "") }, "a1 e2", true},
		{func() error { return l.Replace(nil, "") }, "", true},
		{func() error { return l.Replace(nil, "") }, "", false},
	} {
		changes := l.changes
		fatal.If(t, step.do())
		got, news := l.names()
		diff.Equal(t, step.holds, got, "step", i, "holds")
		if (l.changes > changes) != step.news || news != step.news {
			t.Errorf("step %d: %d changes, news %v", i, l.changes-changes, news)
		}
		if !l.synced() {
			t.Errorf("step %d: not filled", i)
		}
	}
}

// TestStoreFilledWithNothing: an empty list is knowledge, too.
func TestStoreFilledWithNothing(t *testing.T) {
	l := newLife()
	fatal.If(t, l.Replace(nil, "1"))
	if !l.synced() || l.changes != 1 {
		t.Errorf("filled %v, %d changes", l.synced(), l.changes)
	}
	if news, input := l.take(); !news || !input {
		t.Errorf("news %v, input %v", news, input)
	}
}

func TestStoreKeepsEntries(t *testing.T) {
	l := newLife()
	fatal.If(t, l.Replace([]any{space("a", "1"), space("b", "1")}, ""))
	a, b := l.entries["/a"], l.entries["/b"]
	fatal.If(t, l.Replace([]any{space("a", "1"), space("b", "2")}, ""))
	fatal.If(t, l.Update(space("a", "1")))
	if l.entries["/a"] != a || l.entries["/b"] == b {
		t.Error("the unchanged entry was replaced, or the changed one kept")
	}
}

func TestNodes(t *testing.T) {
	read := func(n *corev1.Node) *nodeEntry { return readNode(false, "")(n, nil) }
	full := aNode("node-b", "192.0.2.2", "10.1.2.3/16", "2001:db8:1::/64")
	full.Status.Addresses = append(full.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-b"},
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "::ffff:198.51.100.2"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "203.0.113.2"})
	old := aNode(ourNode, "192.0.2.1")
	old.Spec.PodCIDR = "10.0.0.0/16"
	broken := aNode("node-c", "192.0.2", "10.2.0.0", "10.2.0.0/16")
	empty := &corev1.Node{}
	empty.Name = "node-d"
	var c policy.Cluster
	entries := []*nodeEntry{read(full), read(old), read(broken), read(empty)}
	problems := listNodes(entries, &c)
	s := &Source{node: ourNode, events: make(chan struct{}, 1)}
	s.SetClusterRanges(nil)
	problems = append(problems, s.limitRanges(entries, &c)...)
	want := policy.Cluster{
		Nodes:       addrs("192.0.2.1", "192.0.2.2", "198.51.100.2", "203.0.113.2"),
		PodRanges:   prefixes("10.0.0.0/16", "10.1.0.0/16", "10.2.0.0/16", "2001:db8:1::/64"),
		LocalRanges: prefixes("10.0.0.0/16"),
	}
	diff.Error(t, want, c)
	diff.Equal(t, "Unreadable status.addresses[0].address; Unreadable spec.podCIDRs[0]", problemTexts(problems, "node node-c"), "problems")
	if readNode(false, "")(aPod("x"), nil) != nil {
		t.Error("a pod was read as a node")
	}
}

// TestNodesAreTrimmed before they are gathered, and say the same then.
func TestNodesAreTrimmed(t *testing.T) {
	n := aNode(ourNode, "192.0.2.1", "10.1.0.0/16")
	n.ResourceVersion, n.Labels, n.Annotations = "9", map[string]string{"role": "edge"}, map[string]string{lastApplied: "{}"}
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	n.Spec.PodCIDR, n.Spec.ProviderID = "10.1.0.0/16", "cloud:///1"
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.example.org/a"}}}
	read := readNode(true, ourNode)
	whole := read(n.DeepCopy(), nil)
	client, dyn := newAPIServer(t).clients()
	s, err := New(Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler)})
	fatal.If(t, err)
	gathered, err := s.nodes.Transformer()(n)
	fatal.If(t, err)
	trimmed := gathered.(*corev1.Node)
	if after := read(trimmed, nil); !same(whole, after) || after.own == nil || after.peer == nil {
		t.Errorf("trimmed it is %+v, whole %+v", after, whole)
	}
	if trimmed.ResourceVersion != "9" || trimmed.Status.Images != nil || trimmed.ManagedFields != nil || trimmed.Annotations != nil {
		t.Errorf("%+v", trimmed)
	}
	if _, err := trimNode(aPod("x")); err == nil {
		t.Error("a pod was trimmed")
	}
}

func TestNamespaces(t *testing.T) {
	one := readNamespace(aNamespace("shop", map[string]string{"team": "a"}), nil)
	other := readNamespace(aNamespace("shop", map[string]string{"team": "b"}), one)
	bare := readNamespace(aNamespace("bare", nil), nil)
	want := map[string]map[string]string{"shop": {"team": "b"}, "bare": nil}
	diff.Error(t, want, listNamespaces([]*namespaceEntry{other, bare}))
	if readNamespace(aPod("x"), nil) != nil {
		t.Error("a pod was read as a namespace")
	}
}
