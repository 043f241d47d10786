package ipset

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// Kernel is the Interface on the network namespace it was opened in. Changes of
// entries have a socket of their own, so that they do not wait for a long listing, and
// so have listings, which are asked for often.
type Kernel struct {
	sets, entries, lister *nfattr.Socket

	types  map[Type]uint8 // the revision to speak, by set type
	writer writer
}

var _ Interface = (*Kernel)(nil)

// Open opens netlink sockets in the calling thread's network namespace and
// asks the kernel which set types it has. An error says which one is missing.
func Open() (*Kernel, error) {
	k := &Kernel{types: map[Type]uint8{}}
	var err error
	for _, s := range []**nfattr.Socket{&k.sets, &k.entries, &k.lister} {
		if *s, err = nfattr.OpenSocket(); err != nil {
			k.Close()
			return nil, err
		}
	}
	k.writer.send = k.entries.Send
	for _, t := range []Type{HashIP, HashIPPort, HashNetIface} {
		if k.types[t], err = k.revision(t); err != nil {
			k.Close()
			return nil, fmt.Errorf("ipset type %s is not available (load the ip_set modules, or use a kernel with ipset): %w", t, err)
		}
	}
	return k, nil
}

// Close closes the sockets, after the write that is under way.
func (k *Kernel) Close() {
	k.sets.Close()
	k.entries.Close()
	k.lister.Close()
}

// Ensure implements Interface.
func (k *Kernel) Ensure(s Set) error {
	err := k.change(nl.IPSET_CMD_CREATE, s.Name, func(b []byte) []byte {
		b = nfattr.AppendString(b, nl.IPSET_ATTR_TYPENAME, string(s.Type))
		b = nfattr.AppendUint8(b, nl.IPSET_ATTR_REVISION, k.types[s.Type])
		b = nfattr.AppendUint8(b, nl.IPSET_ATTR_FAMILY, family(s.IPv6))
		return appendHeader(b, s)
	})
	if errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.Errno(nl.IPSET_ERR_EXIST)) {
		return k.checkHeader(s)
	}
	return wrap("create", s.Name, err)
}

// checkHeader compares an existing set with the wanted one.
func (k *Kernel) checkHeader(s Set) error {
	var is Set
	err := k.ask(s.Name, flagListHeader, func(attrs []byte) { is, _ = parseHead(attrs) })
	if err == nil && (is.Type != s.Type || is.IPv6 != s.IPv6) {
		err = errMismatch
	}
	return wrap("create", s.Name, err)
}

// Destroy implements Interface.
func (k *Kernel) Destroy(name string) error {
	return wrap("destroy", name, k.change(nl.IPSET_CMD_DESTROY, name, func(b []byte) []byte { return b }))
}

// Swap implements Interface.
func (k *Kernel) Swap(name, other string) error {
	return wrap("swap", name, k.change(nl.IPSET_CMD_SWAP, name, func(b []byte) []byte { return nfattr.AppendString(b, nl.IPSET_ATTR_SETNAME2, other) }))
}

// revision asks for the newest revision of a type that the kernel has, so that
// whatever library version set an older default does not matter.
func (k *Kernel) revision(t Type) (rev uint8, err error) {
	err = k.sets.Get(message(nl.IPSET_CMD_TYPE), unix.AF_INET, func(b []byte) []byte {
		b = nfattr.AppendString(appendName(b, ""), nl.IPSET_ATTR_TYPENAME, string(t))
		return nfattr.AppendUint8(b, nl.IPSET_ATTR_FAMILY, unix.NFPROTO_IPV4)
	}, func(msg []byte) {
		if v := nfattr.Parse(msg[nfattr.HeaderLen:])[nl.IPSET_ATTR_REVISION]; len(v) == 1 {
			rev = v[0]
		}
	})
	return rev, wrap("type", string(t), err)
}

// change sends a change of a set, with the attributes that rest appends. A set that is to be
// created must not be there.
func (k *Kernel) change(cmd uint16, name string, rest func([]byte) []byte) error {
	return k.sets.Change(message(cmd), unix.NLM_F_EXCL, unix.AF_INET, func(b []byte) []byte { return rest(appendName(b, name)) })
}

func wrap(op, set string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno >= nl.IPSET_ERR_PRIVATE { // of ip sets, not of the system
		err = nl.IPSetError(uintptr(errno))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT):
		err = errNotFound
	case errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)), errors.Is(err, nl.IPSetError(nl.IPSET_ERR_REFERENCED)):
		err = errBusy
	case errors.Is(err, nl.IPSetError(nl.IPSET_ERR_TYPE_MISMATCH)):
		err = errMismatch
	case errors.Is(err, nl.IPSetError(errHashFull)):
		err = errFull
	}
	return refused(op, set, err)
}
