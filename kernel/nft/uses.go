package nft

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// The kernel counts in an element with a quota the packets that match it. The quota stays when the
// timeout of the element moves in place. An element that an earlier agent wrote has no quota. In
// a set with such elements, changes in place replace elements until a listing finds none.

// notesUses tells whether the kernel knows quotas of elements with a timeout.
func (k kernel) notesUses() bool {
	b := wire.New(knftables.InetFamily, TableName+"-check")
	b.AddTable()
	b.AddSet("check", []string{"ipv4_addr"}, unix.NFT_SET_TIMEOUT)
	e := Entry{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Timeout: time.Minute}
	addEntries(b, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "check", []Entry{e}, true, true)
	_, err := b.Check(k.sockets)
	return err == nil
}

// lacksUses tells whether a listing found entries in a set for which the kernel notes nothing,
// although it can.
func (t *Tables) lacksUses(set string) bool {
	_, lacks := t.unnoted.Load(set)
	return lacks && t.notesUses.Load()
}

// noted takes in whether a set of a listing has such entries.
func (t *Tables) noted(set string, part []Entry) {
	lacks := false
	for i := range part {
		lacks = lacks || part[i].unnoted
		part[i].unnoted = false
	}
	if lacks {
		t.unnoted.Store(set, true)
	} else {
		t.unnoted.Delete(set)
	}
}
