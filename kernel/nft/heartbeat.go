package nft

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
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
	if err := t.generations.Urgent(func() error { return t.renew(ctx) }); err != nil {
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
	var timeout time.Duration
	if t.triesToMove() {
		last, err := t.kernel.alive(ctx)
		if err != nil {
			return err
		}
		if timeout = renewals[0]; hasTimeout(last, renewals[0]) {
			timeout = renewals[1]
		}
		if err := t.kernel.renewAlive(ctx, timeout, false); err != nil {
			return err
		}
		now, err := t.kernel.alive(ctx)
		if err != nil {
			return err
		}
		if hasTimeout(now, timeout) {
			// An element that ended between the readings is new, and says nothing.
			if len(last) == 1 && last[0].expires > HeartbeatTimeout/2 {
				t.moves.Store(true)
			}
			return nil
		}
		if unmoved(last, now) {
			t.replaces.Store(replacedBeats)
		}
		timeout = 0
	}
	return t.kernel.renewAlive(ctx, timeout, true)
}

// replacedBeats is how many heartbeats replace the element after the kernel did not move it: another agent's
// heartbeat between the readings looks the same.
const replacedBeats = 60

// triesToMove tells whether a heartbeat is to move the deadline in place.
func (t *Tables) triesToMove() bool {
	if t.replaces.Load() == 0 {
		return true
	}
	t.replaces.Add(-1)
	return false
}

// renewAlive adds the element of the switch, with a timeout other than that of the set unless it
// is 0. With replace it removes the one that is there, in the same transaction.
func (k kernel) renewAlive(ctx context.Context, timeout time.Duration, replace bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m := wire.New(knftables.InetFamily, TableName, nil)
	if replace {
		m.Flush(&knftables.Set{Name: aliveSet})
	}
	m.List(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, aliveSet, func(b []byte) []byte {
		b, element := nfattr.Begin(b, unix.NFTA_LIST_ELEM)
		b, key := nfattr.Begin(b, unix.NFTA_SET_ELEM_KEY)
		b = nfattr.Append(b, unix.NFTA_DATA_VALUE, binary.BigEndian.AppendUint16(nil, dnsPortNumber))
		nfattr.End(b, key)
		if timeout > 0 {
			b = nfattr.AppendUint64(b, unix.NFTA_SET_ELEM_TIMEOUT, uint64(timeout.Milliseconds()))
		}
		nfattr.End(b, element)
		return b
	})
	_, err := m.Commit(k.sockets)
	return err
}

// aliveElement is an element of the switch: its own timeout, 0 for that of the set, and how long
// it is going to live.
type aliveElement struct{ timeout, expires time.Duration }

// alive lists the elements of the switch.
func (k kernel) alive(ctx context.Context) (out []aliveElement, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = k.dump(unix.NFT_MSG_GETSETELEM, unix.NFPROTO_INET, func(attrs []byte) {
		for _, list := range nfattr.All(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for _, element := range nfattr.All(list, unix.NFTA_LIST_ELEM) {
				a := nfattr.Parse(element)
				out = append(out, aliveElement{milliseconds(a[unix.NFTA_SET_ELEM_TIMEOUT]), milliseconds(a[unix.NFTA_SET_ELEM_EXPIRATION])})
			}
		}
	}, text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName), text(unix.NFTA_SET_ELEM_LIST_SET, aliveSet))
	return out, err
}

func milliseconds(b []byte) time.Duration { return time.Duration(nfattr.Uint64(b)) * time.Millisecond }

// unmoved tells whether the kernel left an element as it was. An element that is gone, or
// that another agent renewed meanwhile, says nothing about the kernel.
func unmoved(last, now []aliveElement) bool {
	return len(last) == 1 && len(now) == 1 && last[0].timeout == now[0].timeout
}

// hasTimeout tells whether an element has a timeout, to the precision of the kernel's clock
// tick, which is at most 10 ms.
func hasTimeout(elements []aliveElement, d time.Duration) bool {
	return slices.ContainsFunc(elements, func(e aliveElement) bool { return (e.timeout - d).Abs() < 10*time.Millisecond })
}
