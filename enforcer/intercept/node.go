package intercept

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
)

// nodeServing are the addresses on which the node's own queries are served.
type nodeServing struct {
	assigned map[netip.Addr]netip.Addr // resolver of the host to this generation's
	serving  map[netip.Addr]netip.Addr // of assigned, in force; replaced and never changed
	guarded  map[netip.Addr]bool       // serving addresses, from the first write to the kernel on
	loopTest string
}

func newNodeServing() nodeServing {
	return nodeServing{assigned: map[netip.Addr]netip.Addr{}, guarded: map[netip.Addr]bool{}, loopTest: digits(layout.LoopTestDigits)}
}

// NodeServing returns the serving addresses of the node's own queries in force by the resolvers
// of the host. The caller must not change the map.
func (i *Interception) NodeServing() map[netip.Addr]netip.Addr {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.node.serving
}

// Guard notes that the kernel leads the node's own queries to serving addresses, by the resolvers, and guards
// these against others.
func (i *Interception) Guard(serving map[netip.Addr]netip.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range serving {
		i.node.guarded[s] = true
	}
}

// HostResolver returns the resolver of the host whose queries by the node itself a serving address
// takes, none for other addresses, and whether the kernel guards the address by now.
func (i *Interception) HostResolver(serving netip.Addr) (resolver netip.Addr, guarded bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for r, s := range i.node.assigned {
		if s == serving {
			return r, i.node.guarded[s]
		}
	}
	return netip.Addr{}, false
}

// NodeAssigned returns the serving addresses of the node's own queries by the resolvers, also those
// that are not in force yet.
func (i *Interception) NodeAssigned() map[netip.Addr]netip.Addr {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return maps.Clone(i.node.assigned)
}

// LoopTestName returns the digits with which the names of TestLoop begin.
func (i *Interception) LoopTestName() string { return i.node.loopTest }

// loopTestWait is how long TestLoop waits for the answer of a resolver: the forwarders of a loop
// have sent the query by then.
const loopTestWait = 2 * time.Second

// TestLoop asks a resolver for a name that does not exist, by ask, which has to send the query from
// a socket with the agent's mark, over UDP and as it is. back has the addresses to which programs of
// the node sent a query for that name, sorted. If the resolver is among them, it is a forwarder that
// leads back to itself, or another forwarder on the node does: its queries must not be led to the agent.
// Other addresses are those of the next resolvers that a forwarder on the node asks.
//
// The node's network has to be in force with NodeDNS. A resolver that does not answer is no error, but
// answered is false: the query may not have come to a forwarder.
func (i *Interception) TestLoop(ctx context.Context, resolver netip.Addr, ask func(ctx context.Context, resolver netip.Addr, name string) error) (back []netip.Addr, answered bool, err error) {
	rest := digits(layout.LoopTestLabel - layout.LoopTestDigits)
	wait, cancel := context.WithTimeout(ctx, loopTestWait)
	defer cancel()
	answered = ask(wait, resolver, i.node.loopTest+rest+"."+digits(layout.LoopTestDigits)+".") == nil
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	back, err = i.cfg.Tables.LoopTested(ctx, rest)
	if err != nil {
		return nil, answered, fmt.Errorf("test whether queries to %s come back: %w", resolver, err)
	}
	slices.SortFunc(back, netip.Addr.Compare)
	return slices.Compact(back), answered, nil
}

// digits returns n random decimal digits, n < 19: forwarders that change the case of letters leave them.
func digits(n int) string {
	bound := big.NewInt(1)
	for range n {
		bound.Mul(bound, big.NewInt(10))
	}
	number, _ := rand.Int(rand.Reader, bound) // never fails: see its documentation
	return fmt.Sprintf("%0*d", n, number)
}
