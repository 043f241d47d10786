package ipset

import (
	"bytes"
	"encoding/binary"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
)

// Sizes implements Interface. The kernel reports no changes of sets, so the caller polls:
// a node with 10,000 sets must not notice.
func (k *Kernel) Sizes(names ...string) (map[string]int, error) {
	room := len(names)
	if room == 0 {
		room = int(k.most.Load())
	}
	sizes := make(map[string]int, room)
	each := func(attrs []byte) { count(attrs, sizes) }
	if len(names) == 0 {
		err := k.ask("", flagListHeader, each)
		k.most.Store(int64(len(sizes)))
		return sizes, wrap("list", "sizes", err)
	}
	for _, n := range names {
		if err := wrap("list", n, k.ask(n, flagListHeader, each)); err != nil && !IsNotFound(err) {
			return nil, err
		}
	}
	return sizes, nil
}

// count reads one set's header.
func count(attrs []byte, sizes map[string]int) {
	var name, elements []byte
	nfattr.Each(attrs, func(typ int, value []byte) {
		switch typ {
		case nl.IPSET_ATTR_SETNAME:
			name, _, _ = bytes.Cut(value, []byte{0})
		case nl.IPSET_ATTR_DATA:
			nfattr.Each(value, func(typ int, value []byte) {
				if typ == nl.IPSET_ATTR_ELEMENTS {
					elements = value
				}
			})
		}
	})
	if name != nil && len(elements) == 4 {
		sizes[string(name)] = int(binary.BigEndian.Uint32(elements))
	}
}
