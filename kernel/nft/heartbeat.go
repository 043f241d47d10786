package nft

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
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

// renewInKernel does the same without the program nft, whose start takes longer than a
// heartbeat on a busy node, and which would be most of the cost of an idle agent.
func renewInKernel(ctx context.Context) error {
	conn, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		end, bounded := ctx.Deadline()
		if !bounded {
			return nil
		}
		return c.SetDeadline(end)
	}))
	if err != nil {
		return err
	}
	set := &nftables.Set{
		Table: &nftables.Table{Family: nftables.TableFamilyINet, Name: TableName},
		Name:  aliveSet, KeyType: nftables.TypeInetService, HasTimeout: true,
	}
	conn.FlushSet(set)
	if err := conn.SetAddElements(set, []nftables.SetElement{{Key: binary.BigEndian.AppendUint16(nil, dnsPortNumber)}}); err != nil {
		return err
	}
	return conn.Flush()
}
