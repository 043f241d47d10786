package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/marks"
	"github.com/namegate/namegate/kernel/nft/wire"
	"github.com/namegate/namegate/kernel/subscription"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// MarkUse returns the first rule of another program's nftables chain that reads
// or writes one bit of packet or connection marks, as "table T, chain C, rule with handle N",
// "" without one. A packet mark that is written whole with the bit clear does not
// count: it can take an allowance away and not give one. Tables that are known
// already, as iptables' own are, are not read again. unread are tables that cannot be read, with
// the reason.
func (t *Tables) MarkUse(bit uint32, known func(ID) bool) (use string, unread []error, err error) {
	if !t.direct {
		return "", nil, nil
	}
	tables, err := t.kernel.tableNames()
	if err != nil {
		return "", nil, err
	}
	for _, n := range tables {
		if t.all[n] != nil || known(n) {
			continue
		}
		var failed error
		err := t.kernel.dump(unix.NFT_MSG_GETRULE, wire.FamilyNumbers[knftables.Family(n.Family)], func(attrs []byte) {
			a := nfattr.Parse(attrs)
			if use != "" || nfattr.String(a[unix.NFTA_RULE_TABLE]) != n.Name {
				return
			}
			uses, err := marks.Use(a[unix.NFTA_RULE_EXPRESSIONS], bit)
			if !uses && err == nil {
				return
			}
			at := fmt.Sprintf("chain %s, rule with handle %d", nfattr.String(a[unix.NFTA_RULE_CHAIN]), nfattr.Uint64(a[unix.NFTA_RULE_HANDLE]))
			if err != nil {
				failed = fmt.Errorf("%s: %w", at, err)
			} else {
				use = fmt.Sprintf("table %s %s, %s", n.Family, n.Name, at)
			}
		}, text(unix.NFTA_RULE_TABLE, n.Name))
		if use != "" {
			return use, unread, nil
		}
		if err = cmp.Or(err, failed); err != nil {
			unread = append(unread, fmt.Errorf("read nft table %s %s: %w", n.Family, n.Name, err))
		}
	}
	return "", unread, nil
}

// RemoveChains removes the chains that iptables wrote to nftables and whose names begin with
// a prefix, and all rules that jump to them, in one transaction. It needs no program of
// iptables. Chains of the inet family and of other names stay.
func (t *Tables) RemoveChains(ctx context.Context, prefix string) error {
	for _, f := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		var flush, remove strings.Builder
		if err := t.kernel.removalOf(f, prefix, &flush, &remove); err != nil {
			return fmt.Errorf("list the chains of iptables: %w", err)
		}
		if remove.Len() == 0 {
			continue
		}
		if err := t.generations.Own(func() error { return runProgram(ctx, flush.String()+remove.String()) }); err != nil {
			return fmt.Errorf("remove the chains of iptables: %w", err)
		}
	}
	return nil
}

// removalOf writes the commands that remove the chains of one family: a chain can go once
// nothing jumps to it.
func (k kernel) removalOf(f knftables.Family, prefix string, flush, remove *strings.Builder) error {
	err := k.dump(unix.NFT_MSG_GETCHAIN, wire.FamilyNumbers[f], func(attrs []byte) {
		a := nfattr.Parse(attrs)
		if name := nfattr.String(a[unix.NFTA_CHAIN_NAME]); strings.HasPrefix(name, prefix) {
			table := nfattr.String(a[unix.NFTA_CHAIN_TABLE])
			fmt.Fprintf(flush, "flush chain %s %s %s\n", f, table, name)
			fmt.Fprintf(remove, "delete chain %s %s %s\n", f, table, name)
		}
	})
	if err != nil {
		return err
	}
	return k.dump(unix.NFT_MSG_GETRULE, wire.FamilyNumbers[f], func(attrs []byte) {
		a := nfattr.Parse(attrs)
		chain := nfattr.String(a[unix.NFTA_RULE_CHAIN])
		if !strings.HasPrefix(chain, prefix) && strings.HasPrefix(jump(a[unix.NFTA_RULE_EXPRESSIONS]), prefix) {
			fmt.Fprintf(flush, "delete rule %s %s %s handle %d\n", f, nfattr.String(a[unix.NFTA_RULE_TABLE]), chain, nfattr.Uint64(a[unix.NFTA_RULE_HANDLE]))
		}
	})
}

// jump returns the chain that a rule's verdict leads to, "" without one.
func jump(expressions []byte) string {
	for _, e := range nfattr.All(expressions, unix.NFTA_LIST_ELEM) {
		a := nfattr.Parse(e)
		if nfattr.String(a[unix.NFTA_EXPR_NAME]) != "immediate" {
			continue
		}
		data := nfattr.Parse(nfattr.Parse(a[unix.NFTA_EXPR_DATA])[unix.NFTA_IMMEDIATE_DATA])
		if chain := nfattr.Parse(data[unix.NFTA_DATA_VERDICT])[unix.NFTA_VERDICT_CHAIN]; chain != nil {
			return nfattr.String(chain)
		}
	}
	return ""
}

// runProgram has nft run commands in one transaction.
func runProgram(ctx context.Context, commands string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Attributes of linux/netfilter/nf_tables.h that package unix does not name.
const (
	flowtableTable    = 1
	flowtableName     = 2
	flowtableHook     = 3
	flowtableHookDevs = 3
	deviceName        = 1
	devicePrefix      = 2 // of several devices
)

// Flowtable is a flow table of another program: it forwards packets of its connections from its
// devices, and no rule sees them.
type Flowtable struct {
	ID
	Name string
	// Devices are names of interfaces, or beginnings of names with "*" behind them.
	Devices []string
}

func (f Flowtable) String() string { return fmt.Sprintf("%s %s", f.ID, f.Name) }

// Flowtables lists the flow tables of the host.
func (t *Tables) Flowtables() (out []Flowtable, err error) {
	if !t.direct {
		return t.flowtables, nil
	}
	words := map[uint8]knftables.Family{}
	for word, f := range wire.FamilyNumbers {
		words[f] = word
	}
	err = t.kernel.ask(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC, true, func(f uint8, attrs []byte) {
		out = append(out, parseFlowtable(string(words[f]), attrs))
	})
	if err != nil && !errors.Is(err, nfattr.ErrChanged) {
		return nil, fmt.Errorf("list flow tables: %w", err)
	}
	return out, nil
}

// FakeFlowtables says which flow tables there are. It is for tables on fakes.
func (t *Tables) FakeFlowtables(all ...Flowtable) { t.flowtables = all }

func parseFlowtable(family string, attrs []byte) Flowtable {
	a := nfattr.Parse(attrs)
	f := Flowtable{ID: ID{family, nfattr.String(a[flowtableTable])}, Name: nfattr.String(a[flowtableName])}
	nfattr.Each(nfattr.Parse(a[flowtableHook])[flowtableHookDevs], func(typ int, name []byte) {
		switch typ {
		case deviceName:
			f.Devices = append(f.Devices, nfattr.String(name))
		case devicePrefix:
			f.Devices = append(f.Devices, nfattr.String(name)+"*")
		}
	})
	return f
}

// Watch sends a token after any program changed an object that concerns the caller, by the name of its table and,
// of elements, of their set, else "", until ctx ends; changes while a token waits are one
// token. After an error, which lost receives, it goes on. On fakes nothing is ever sent.
func (t *Tables) Watch(ctx context.Context, concerns func(table, set string) bool, lost func(error)) (<-chan struct{}, error) {
	if !t.direct {
		return nil, nil
	}
	tokens, err := subscription.Watch(ctx, subscription.Groups(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES), func(msgs []syscall.NetlinkMessage) bool { return slices.ContainsFunc(msgs, about(concerns)) }, lost)
	if err != nil {
		return nil, fmt.Errorf("subscribe to nftables events: %w", err)
	}
	return tokens, nil
}

// about tells whether an event is about an object that concerns the caller of Watch.
func about(concerns func(table, set string) bool) func(syscall.NetlinkMessage) bool {
	return func(m syscall.NetlinkMessage) bool {
		if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || m.Header.Type&0xff == unix.NFT_MSG_NEWGEN {
			return false
		}
		a := nfattr.Parse(m.Data[min(nfattr.HeaderLen, len(m.Data)):])
		set := ""
		switch m.Header.Type & 0xff {
		case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
			set = nfattr.String(a[unix.NFTA_SET_ELEM_LIST_SET])
		}
		return concerns(nfattr.String(a[unix.NFTA_TABLE_NAME]), set) // the attribute has the same number in all of them
	}
}
