package ipset

import (
	"bytes"
	"encoding/binary"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
)

// Sizes implements Interface.
func (k *Kernel) Sizes(names ...string) (map[string]int, error) {
	r := k.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(names) == 0 {
		sizes := make(map[string]int, r.most)
		err := r.list("", flagListHeader, func(attrs []byte) { count(attrs, sizes) })
		r.most = len(sizes)
		return sizes, wrap("list", "sizes", err)
	}
	sizes := make(map[string]int, len(names))
	for _, n := range names {
		err := wrap("list", n, r.list(n, flagListHeader, func(attrs []byte) { count(attrs, sizes) }))
		if err != nil && !IsNotFound(err) {
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
