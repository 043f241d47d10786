package nft

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"sigs.k8s.io/knftables"
)

// NetTableName is the name of the second net's table, "inet". It is there with
// DecideNamespace alone.
const NetTableName = "namegate-net"

// netPriority is that of iptables' security table, behind every filter.
const netPriority = "50"

// net is the second net: a table of its own that denies what selected subjects send and get
// without an admission. Without the other tables nothing is admitted.
type net struct {
	table    knftables.Interface // nil on fakes without UseNet
	skeleton func() (*skeleton, error)
	// applied has the elements of the last write. With partial the kernel may hold others.
	applied elements
	partial bool
}

func newNet(table knftables.Interface, bits Bits) net {
	return net{table: table, partial: true, skeleton: sync.OnceValues(func() (*skeleton, error) {
		return newSkeleton(knftables.InetFamily, NetTableName, func(tx *knftables.Transaction) { netLayout(tx, bits) })
	})}
}

// UseNet sets the interface of the second net's table, which may be knftables' fake.
func (t *Tables) UseNet(table knftables.Interface) {
	t.net = newNet(table, t.bits)
	if r, fake := t.reader.(interfaceReader); fake {
		r[tableID{knftables.InetFamily, NetTableName}] = table
	}
}

func netLayout(tx *knftables.Transaction, bits Bits) {
	l := layout{commented{tx}}
	tx.Add(&knftables.Table{})
	l.set("ifaces", "ifname")
	for _, f := range families {
		l.set("selected"+f.suffix, f.addr)
	}
	// The judge marks an untracked packet that it allows.
	l.chain("unadmitted", "", "", "",
		"ct direction reply return",
		"ct state related meta l4proto { icmp, ipv6-icmp } return",
		"ct state untracked "+has("meta mark", bits.Candidate)+" return",
		onLink[0],
		onLink[1],
		"drop")
	// No selected subject has such a source.
	l.chain("foreign", "", "", "", append(slices.Clone(unforwarded), "drop")...)
	rules := slices.Concat([]string{has("ct mark", bits.Admitted) + " return"},
		each("%[2]s daddr @selected%[1]s ct direction reply drop", "%[2]s saddr @selected%[1]s goto unadmitted"),
		[]string{"iifname @ifaces goto foreign"})
	l.chain("forward", "filter", "forward", netPriority, rules...)
	l.chain("input", "filter", "input", netPriority, rules...)
}

// netElements are the elements of the second net.
func (s State) netElements() elements {
	out := elements{}
	out.addrs(knftables.InetFamily, "selected", s.Selected)
	for _, i := range s.Ifaces {
		out.add(knftables.InetFamily, "ifaces", "", ifname(i))
	}
	moved := elements{}
	for _, e := range out {
		e.Table = NetTableName
		moved[elementKey(e)] = e
	}
	return moved
}

// write makes the table anew with elements, in one transaction.
func (t *Tables) writeNet(ctx context.Context, want elements) error {
	tx := t.net.table.NewTransaction()
	// Add first: deleting a table that is not there would be an error.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	netLayout(tx, t.bits)
	for _, e := range want {
		tx.Add(e)
	}
	return t.runNet(ctx, tx, want)
}

// changeNet removes elements that are not wanted any more, which comes before the change of
// the other tables, or adds new ones, which comes behind it.
func (t *Tables) changeNet(ctx context.Context, want elements, add bool) error {
	if t.net.partial {
		if !add {
			return nil
		}
		return t.writeNet(ctx, want)
	}
	next, c := elements{}, change{}
	for key, e := range t.net.applied {
		if _, keep := want[key]; keep || add {
			next[key] = e
		} else {
			c.gone = append(c.gone, e)
		}
	}
	for key, e := range want {
		if _, there := t.net.applied[key]; !there && add {
			c.fresh = append(c.fresh, e)
			next[key] = e
		}
	}
	return t.wroteNet(t.runElements(ctx, t.net.table, t.net.skeleton, nil, c.writeTo), next)
}

func (t *Tables) runNet(ctx context.Context, tx *knftables.Transaction, next elements) error {
	return t.wroteNet(t.run(ctx, t.net.table, tx), next)
}

// wroteNet notes the elements of a write, or its failure.
func (t *Tables) wroteNet(err error, next elements) error {
	if err != nil {
		t.net.partial = true
		return fmt.Errorf("write nft table %s %s: %w", knftables.InetFamily, NetTableName, err)
	}
	t.net.applied, t.net.partial = next, false
	return nil
}

// verifyNet is Verify for the second net. One that is not to be there would deny what the
// state allows.
func (t *Tables) verifyNet(ctx context.Context, st State) ([]string, error) {
	if !t.namespace {
		there, err := t.hasNet(ctx)
		if !there {
			return nil, err
		}
		t.partial = true
		return []string{fmt.Sprintf("nft table %s %s", knftables.InetFamily, NetTableName)}, nil
	}
	s, err := t.net.skeleton()
	if err != nil {
		return nil, err
	}
	found, _, err := t.compare(ctx, s, st.netElements())
	if len(found) > 0 {
		t.net.partial, t.written = true, nil
	}
	return found, err
}

// readNet adds the default-deny addresses of the second net in the kernel, and tells whether
// the table is there: another program may have removed the others.
func (t *Tables) readNet(ctx context.Context, selected *[]netip.Addr) (there bool, err error) {
	if t.net.table == nil {
		return false, nil
	}
	s, err := t.net.skeleton()
	if err != nil {
		return false, err
	}
	is, err := t.contents(ctx, s)
	if err != nil {
		return false, err
	}
	for _, f := range families {
		for _, e := range is.elements["selected"+f.suffix] {
			if a, err := netip.ParseAddr(e.Key[0]); err == nil && !slices.Contains(*selected, a) {
				*selected = append(*selected, a)
			}
		}
	}
	return len(is.rules) > 0, nil
}

func (t *Tables) hasNet(ctx context.Context) (bool, error) {
	if t.net.table == nil {
		return false, nil
	}
	is, err := t.objects(ctx, knftables.InetFamily, NetTableName)
	if err != nil {
		return false, err
	}
	return len(is.rules)+len(is.elements) > 0, nil
}

// removeNet removes the table, if it is there.
func (t *Tables) removeNet(ctx context.Context) error {
	if there, err := t.hasNet(ctx); err != nil || !there {
		return err
	}
	tx := t.net.table.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	if err := t.runNet(ctx, tx, nil); err != nil {
		return err
	}
	t.net.partial = true
	return nil
}
