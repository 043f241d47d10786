package access

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func newPublisher(api *accesstest.API, listen ...string) *publisher {
	p := &publisher{Options: Options{Client: api, Namespace: accesstest.Namespace, DaemonSet: "namegate", Node: "n1", Log: silent}, pin: entry.Pin{1}}
	for _, a := range listen {
		p.listen = append(p.listen, netip.MustParseAddrPort(a))
	}
	return p
}

// writes counts the requests that change Leases.
func writes(api *accesstest.API) (n int) {
	for _, a := range api.Actions() {
		if a.GetResource().Resource == "leases" && a.GetVerb() != "get" {
			n++
		}
	}
	return n
}

// TestPublish: the first of a Lease makes it, and the release takes it along when it
// goes; nothing is written twice.
func TestPublish(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: accesstest.Namespace, Name: "namegate", UID: "7"}}
	other := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: accesstest.Namespace, Name: "other", UID: "8"}}
	api := accesstest.NewAPI(accesstest.Node("n1"), set, other)
	p := newPublisher(api, "192.0.2.1:9954", "127.0.0.1:9954", "[::1]:9954")
	fatal.If(t, p.publish(t.Context()))
	l := accesstest.Lease(t, api, entry.LeaseOf("n1"))
	diff.Error(t, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "namegate", UID: "7"}}, l.OwnerReferences, "owners")
	diff.Error(t, map[string]string{"app.kubernetes.io/managed-by": "namegate", "namegate.io/lease": "console"}, l.Labels, "labels")
	e, err := entry.Decode("n1", l.Annotations["n1/namegate-console"])
	fatal.If(t, err)
	if e.Pin != p.pin || !slices.Equal(e.Addresses, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:9954")}) {
		t.Errorf("published %+v", e)
	}
	fatal.If(t, p.publish(t.Context()))
	diff.Equal(t, 1, writes(api), "writes")
}

// TestPublishBesideOthers: other agents' annotations stay, except those of deleted nodes.
func TestPublishBesideOthers(t *testing.T) {
	api := accesstest.NewAPI(accesstest.Node("n1"), accesstest.Node("there"), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: accesstest.Namespace, Name: entry.LeaseOf("n1"),
		Annotations: map[string]string{"n1/namegate-console": "of the agent before", "there/namegate-console": "x", "gone/namegate-console": "y", "note": "z"},
	}})
	p := newPublisher(api, "192.0.2.1:9954")
	fatal.If(t, p.publish(t.Context()))
	got := accesstest.Lease(t, api, entry.LeaseOf("n1")).Annotations
	diff.Error(t, []string{"n1/namegate-console", "note", "there/namegate-console"}, slices.Sorted(maps.Keys(got)), "annotations")
	if _, err := entry.Decode("n1", got["n1/namegate-console"]); err != nil {
		t.Error(err)
	}
}

// TestTidyIsBounded: however many nodes are gone, a look asks for a few, and some
// looks later all are gone.
func TestTidyIsBounded(t *testing.T) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: accesstest.Namespace, Name: entry.LeaseOf("n1"), Annotations: map[string]string{}}}
	for i := range 40 {
		l.Annotations["gone-"+string(rune('a'+i%26))+string(rune('a'+i/26))+entry.Suffix] = "x"
	}
	api := accesstest.NewAPI(accesstest.Node("n1"), l)
	p := newPublisher(api, "192.0.2.1:9954")
	for look := 1; look <= 5; look++ {
		api.ClearActions()
		fatal.If(t, p.publish(t.Context()))
		asked := 0
		for _, a := range api.Actions() {
			if a.Matches("get", "nodes") {
				asked++
			}
		}
		diff.Equal(t, maxTidy, asked, "nodes that look", look, "asks for")
	}
	if got := accesstest.Lease(t, api, entry.LeaseOf("n1")).Annotations; len(got) != 1 {
		t.Errorf("left are %v", got)
	}
}

// TestPublishedAddresses: for a listener on all addresses the Node's, and no loopback
// address.
func TestPublishedAddresses(t *testing.T) {
	n := accesstest.Node("n1", corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"}, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::1"})
	for _, c := range []struct {
		listen []string
		want   []string
	}{
		{[]string{"[::]:9954"}, []string{"192.0.2.1:9954", "[2001:db8::1]:9954"}},
		{[]string{"0.0.0.0:1"}, []string{"192.0.2.1:1", "[2001:db8::1]:1"}},
		{[]string{"192.0.2.9:1", "127.0.0.1:1"}, []string{"192.0.2.9:1"}},
		{[]string{"127.0.0.1:1"}, nil},
	} {
		got, err := newPublisher(accesstest.NewAPI(n), c.listen...).addresses(t.Context())
		fatal.If(t, err)
		var text []string
		for _, a := range got {
			text = append(text, a.String())
		}
		diff.Error(t, c.want, text, c.listen)
	}
	if _, err := newPublisher(accesstest.NewAPI(), "0.0.0.0:1").addresses(t.Context()); err == nil {
		t.Error("knows the addresses of a node that is not there")
	}
}

// TestKeepsPublishing: failures are tried again soon, and what somebody removes is
// back after a while.
func TestKeepsPublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := accesstest.NewAPI(accesstest.Node("n1"))
		var failing atomic.Bool
		failing.Store(true)
		api.PrependReactor("*", "leases", func(clienttest.Action) (bool, runtime.Object, error) {
			if failing.Load() {
				return true, nil, accesstest.ErrGone
			}
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			newPublisher(api, "192.0.2.1:9954").keep(ctx)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		failing.Store(false)
		time.Sleep(publishAgain)
		synctest.Wait()
		accesstest.Lease(t, api, entry.LeaseOf("n1"))
		fatal.If(t, api.CoordinationV1().Leases(accesstest.Namespace).Delete(t.Context(), entry.LeaseOf("n1"), metav1.DeleteOptions{}))
		time.Sleep(publishLook)
		synctest.Wait()
		accesstest.Lease(t, api, entry.LeaseOf("n1"))
		cancel()
		<-done
		accesstest.Lease(t, api, entry.LeaseOf("n1")) // the next agent writes over it
	})
}

// TestLeaves: an agent without a successor removes its own annotation and no other.
func TestLeaves(t *testing.T) {
	for _, c := range []struct {
		name          string
		leaving, next bool // another agent of the node published meanwhile
		there         bool
	}{
		{"an upgrade", false, false, true},
		{"the last", true, false, false},
		{"followed all the same", true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := accesstest.NewAPI(accesstest.Node("n1"), accesstest.Node("n2"))
				p := newPublisher(api, "192.0.2.1:9954")
				p.Leaving = func() bool { return c.leaving }
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); p.keep(ctx) }()
				synctest.Wait()
				if c.next {
					accesstest.PublishAt(t, api, "n1", entry.Pin{2}, netip.MustParseAddrPort("192.0.2.1:9954"))
				}
				cancel()
				<-done
				if _, there := accesstest.Lease(t, api, entry.LeaseOf("n1")).Annotations["n1"+entry.Suffix]; there != c.there {
					t.Errorf("there: %v", there)
				}
			})
		})
	}
	// Where nothing is there any more, nothing is wrong.
	fatal.If(t, newPublisher(accesstest.NewAPI()).remove(t.Context()))
}
