package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
