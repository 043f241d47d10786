package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
	"github.com/namegate/namegate/testkit/netns"
)

// onKernel is a node whose sets are the kernel's own, with pods that may reach
// *.example.net on one port.
func onKernel(t testing.TB, pods int) (*world, []policy.Pod) {
	netns.Own(t)
	sets, err := ipset.Open()
	fatal.If(t, err)
	t.Cleanup(sets.Close)
	w := newNode(t)
	w.real = sets
	w.restart()
	var all []policy.Pod
	for i := range pods {
		all = append(all, pod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), "allow"))
	}
	w.apply(all, pol("allow", "tcp/443 *.example.net"))
	return w, all
}

// Grants of many pods at the same time on the kernel itself, one pod's set gone: the
// others' are all there, with their deadlines, as the table has them.
func TestKernelGrantsTogether(t *testing.T) {
	t.Parallel()
	w, pods := onKernel(t, 8)
	gone := pods[3] // no rule of the kernel's asks its set, so that it can be destroyed
	fatal.If(t, w.real.Destroy(xtables.GrantSetName(gone.PodRef, https, iptables.IPv4)))
	var wait sync.WaitGroup
	asked := granttest.Fresh(w.snap, pods, 4000, w.clock.Now())
	for i, g := range asked {
		if i%16 >= 8 {
			g[0].Addrs = append(g[0].Addrs, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)))
		}
		wait.Go(func() {
			if err := granttest.Grant(context.Background(), w.e.grants, g); (g[0].Pod == gone.PodRef) != ipset.IsNotFound(err) {
				t.Errorf("grant %d: %v", i, err)
			}
		})
	}
	wait.Wait()
	for i, g := range asked {
		if w.e.grants.Covered(g) == (g[0].Pod == gone.PodRef) {
			t.Errorf("grant %d: covered, or not, against what was said of it", i)
		}
	}
	for _, p := range pods {
		if p.PodRef == gone.PodRef {
			continue
		}
		for f, want := range map[iptables.Family]int{iptables.IPv4: 500, iptables.IPv6: 250} {
			_, es, err := ipset.Read(w.real, xtables.GrantSetName(p.PodRef, https, f))
			if err != nil || len(es) != want {
				t.Errorf("%s: %d %v entries, %v", p.Name, len(es), f, err)
			}
			for _, e := range es {
				if strings.Count(e.Comment, " ; ") != 0 || !strings.Contains(e.Comment, ".example.net until=") || !strings.Contains(e.Comment, " shop/allow ") || e.Timeout < time.Hour {
					t.Fatalf("%s: %+v", p.Name, e)
				}
			}
		}
	}
	w.expire(2 * time.Hour)
	if n := w.e.Status().Grants; n != 0 {
		t.Errorf("%d grants after their deadlines", n)
	}
	for _, p := range pods {
		if _, es, err := ipset.Read(w.real, xtables.GrantSetName(p.PodRef, https, iptables.IPv6)); err != nil || len(es) != 0 {
			t.Errorf("%s: %d entries are left, %v", p.Name, len(es), err)
		}
	}
}
