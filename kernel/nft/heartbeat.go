package nft

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/namegate/namegate/kernel/nfattr"
	"sigs.k8s.io/knftables"
)

// HeartbeatTimeout is how long interception stays on after the last heartbeat: the
// dead-man switch of the design.
const HeartbeatTimeout = 3 * time.Second

// aliveSet holds the port of DNS while an agent is alive.
const aliveSet = "alive"

// Heartbeat keeps interception on for another HeartbeatTimeout. It hardly waits for other
// changes of this agent's, which may take seconds on a busy node.
func (t *Tables) Heartbeat(ctx context.Context) error {
	if err := t.generations.urgent(func() error { return t.renew(ctx) }); err != nil {
		return fmt.Errorf("renew the dead-man switch: %w", err)
	}
	return nil
}

// Disable switches interception off at once.
func (t *Tables) Disable(ctx context.Context) error {
	tx := t.inet.NewTransaction()
	tx.Flush(&knftables.Set{Name: aliveSet})
	if err := t.run(ctx, t.inet, tx); err != nil {
		return fmt.Errorf("switch interception off: %w", err)
	}
	return nil
}

// renewByInterface renews the switch by knftables.
func (t *Tables) renewByInterface(ctx context.Context) error {
	tx := t.inet.NewTransaction()
	// Adding an element that is there does not renew it; both in one transaction leave
	// no time without it.
	tx.Flush(&knftables.Set{Name: aliveSet})
	tx.Add(&knftables.Element{Set: aliveSet, Key: []string{dnsPort}})
	return t.inet.Run(ctx, tx)
}

// renewals are the timeouts of the element in turn. Linux moves the deadline of an element
// that is there if it is added with another timeout (6.12 and later). They are multiples of
// a jiffy at every HZ, and neither is the default of the set, which a dump leaves out.
var renewals = [2]time.Duration{HeartbeatTimeout + 20*time.Millisecond, HeartbeatTimeout + 40*time.Millisecond}

// renewInKernel does the same without the program nft, whose start takes longer than a
// heartbeat on a busy node, and which would be most of the cost of an idle agent.
//
// It moves the deadline in place where the kernel can. After a transaction that deletes, each
// program that closes a socket of netfilter waits for an RCU grace period: 15 ms on an idle
// machine, and seconds on a busy one (Linux 6.18).
func (t *Tables) renewInKernel(ctx context.Context) error {
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		end, bounded := ctx.Deadline()
		if !bounded {
			return nil
		}
		return c.SetDeadline(end)
	}))
	if err != nil {
		return err
	}
	defer nfattr.CloseLater(func() { _ = conn.CloseLasting() })
	set := &nftables.Set{
		Table: &nftables.Table{Family: nftables.TableFamilyINet, Name: TableName},
		Name:  aliveSet, KeyType: nftables.TypeInetService, HasTimeout: true,
	}
	element := nftables.SetElement{Key: binary.BigEndian.AppendUint16(nil, dnsPortNumber)}
	add := func() error {
		if err := conn.SetAddElements(set, []nftables.SetElement{element}); err != nil {
			return err
		}
		return conn.Flush()
	}
	if !t.replaces.Load() {
		last, err := conn.GetSetElements(set)
		if err != nil {
			return err
		}
		if element.Timeout = renewals[0]; hasTimeout(last, renewals[0]) {
			element.Timeout = renewals[1]
		}
		if err := add(); err != nil {
			return err
		}
		now, err := conn.GetSetElements(set)
		if err != nil {
			return err
		}
		if hasTimeout(now, element.Timeout) {
			// An element that ended between the readings is new, and says nothing.
			if len(last) == 1 && last[0].Expires > HeartbeatTimeout/2 {
				t.moves.Store(true)
			}
			return nil
		}
		if unmoved(last, now) {
			t.replaces.Store(true)
		}
		element.Timeout = 0
	}
	conn.FlushSet(set)
	return add()
}

// unmoved tells whether the kernel left an element as it was. An element that is gone, or
// that another agent renewed meanwhile, says nothing about the kernel.
func unmoved(last, now []nftables.SetElement) bool {
	return len(last) == 1 && len(now) == 1 && last[0].Timeout == now[0].Timeout
}

// hasTimeout tells whether an element has a timeout, to the precision of the kernel's clock
// tick, which is at most 10 ms.
func hasTimeout(elements []nftables.SetElement, d time.Duration) bool {
	return slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return (e.Timeout - d).Abs() < 10*time.Millisecond })
}
