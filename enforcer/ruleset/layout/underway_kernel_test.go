package layout_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/fatal"
)

// elsewhere is a table of another layout that allows a pod's datagrams to an address, by a map
// with another name, in base chains at another priority. It has as many rules as ours: the
// kernel ends them one after the other.
func elsewhere(pod, to netip.Addr, port uint16) string {
	many := strings.Repeat("counter\n", 300)
	return fmt.Sprintf(`delete table inet namegate
table inet namegate {
	counter denied { }
	set chosen4 { type ipv4_addr; elements = { %[1]s }; }
	map units4 { type ipv4_addr : verdict; elements = { %[1]s : goto unit }; }
	set grants-0123456789ab-4 { type ipv4_addr . inet_proto . inet_service; flags timeout; elements = { %[2]s . udp . %[3]d timeout 1h }; }
	chain many { %[4]s }
	chain unit { meta l4proto udp ip daddr . meta l4proto . ct original proto-dst @grants-0123456789ab-4 ct mark set ct mark | 0x40 accept; }
	chain verdict { ip saddr vmap @units4; counter name denied drop; }
	chain forward { type filter hook forward priority -20; ip saddr @chosen4 goto verdict; }
	chain input { type filter hook input priority -20; }
}`, pod, to, port, many)
}

// TestNothingIsDeniedWhileLayoutsChange: packets that both layouts allow are denied by none
// while the kernel takes one for the other.
func TestNothingIsDeniedWhileLayoutsChange(t *testing.T) {
	t.Parallel()
	l := newStage(t, lab.Routed, []string{"a"})
	ctx, p := context.Background(), l.Pod("a")
	to := netip.MustParseAddrPort("198.51.100.7:9000")
	// A connection that is never answered is judged by each packet.
	silent, err := l.World.ListenPacket("udp4", to.String())
	fatal.If(t, err)
	t.Cleanup(func() { silent.Close() })
	set := layout.GrantSet{Name: "0123456789ab", Ported: true}
	s := layout.State{
		Selected: []netip.Addr{p.Addr4}, Ifaces: []string{p.Iface}, Homes: []layout.Home{{Iface: p.Iface, Addr: p.Addr4}}, GrantSets: []layout.GrantSet{set},
		Subjects: []layout.Subject{{ID: set.Name, Addrs: []netip.Addr{p.Addr4}, Grants: []layout.GrantSet{set}}},
	}
	const rounds = 10
	var denied uint64
	sent := 0
	for range rounds {
		var tables *stateTables
		l.do(func(context.Context) error { tables = laterAgent(t); return nil })
		tables.decideNamespace()
		l.pipe("add table inet namegate\n" + elsewhere(p.Addr4, to.Addr(), to.Port()))
		c, err := p.Dial("udp4", to.String(), lab.Limit)
		fatal.If(t, err)
		over := make(chan struct{})
		var flood sync.WaitGroup
		flood.Go(func() {
			for ; ; sent++ {
				select {
				case <-over:
					return
				default:
					_, _ = c.Write([]byte("x")) // an error tells of a denial, which is counted
				}
			}
		})
		time.Sleep(time.Millisecond)
		err = l.Node.Do(func() error {
			if err := errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)); err != nil {
				return err
			}
			found, err := tables.Verify(ctx, s)
			if len(found) > 0 {
				err = errors.Join(err, fmt.Errorf("%q deviate", found))
			}
			n, failed := tables.Denied()
			denied += n
			return errors.Join(err, failed)
		})
		close(over)
		flood.Wait()
		fatal.If(t, errors.Join(err, c.Close()))
	}
	if denied > 0 || sent < 100*rounds {
		t.Errorf("%d packets of %d were denied while layouts changed %d times", denied, sent, rounds)
	}
}
