package ipset

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Kernel is the Interface on the network namespace it was opened in. Changes of
// entries have a socket of their own, so that they do not wait for a long listing, and
// so have listings, which are asked for often.
type Kernel struct {
	mu     sync.Mutex
	socket *nl.SocketHandle
	types  map[Type]uint8 // the revision to speak, by set type
	writer *writer
	lister *nfattr.Socket
	most   atomic.Int64 // sets, the last time that all sizes were asked for
}

var _ Interface = (*Kernel)(nil)

// Open opens a netlink socket in the calling thread's network namespace and
// asks the kernel which set types it has. An error says which one is missing.
func Open() (*Kernel, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter netlink socket: %w", err)
	}
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 10}); err != nil {
		s.Close()
		return nil, fmt.Errorf("bound netfilter netlink socket: %w", err)
	}
	k := &Kernel{socket: &nl.SocketHandle{Socket: s}, types: map[Type]uint8{}}
	for _, t := range []Type{HashIP, HashIPPort, HashNet, HashNetIface} {
		rev, err := k.revision(t)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("ipset type %s is not available (load the ip_set modules, or use a kernel with ipset): %w", t, err)
		}
		k.types[t] = rev
	}
	if k.writer, err = openWriter(); err != nil {
		s.Close()
		return nil, fmt.Errorf("open netfilter netlink socket: %w", err)
	}
	if k.lister, err = nfattr.OpenSocket(); err != nil {
		s.Close()
		k.writer.close()
		return nil, err
	}
	return k, nil
}

// Close closes the sockets, after the write that is under way.
func (k *Kernel) Close() {
	k.socket.Close()
	k.writer.close()
	k.lister.Close()
}

// Ensure implements Interface.
func (k *Kernel) Ensure(s Set) error {
	req := k.request(nl.IPSET_CMD_CREATE, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_EXCL)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(s.Name)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(string(s.Type))))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_REVISION, nl.Uint8Attr(k.types[s.Type])))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FAMILY, nl.Uint8Attr(family(s.IPv6))))
	req.AddData(headerAttr(s))
	err := k.do(req, nil)
	if errors.Is(err, syscall.EEXIST) || errors.Is(err, nl.IPSetError(nl.IPSET_ERR_EXIST)) {
		return k.checkHeader(s)
	}
	if err == nil {
		k.writer.count(s)
	}
	return wrap("create", s.Name, err)
}

// checkHeader compares an existing set with the wanted one.
func (k *Kernel) checkHeader(s Set) error {
	req := k.request(nl.IPSET_CMD_HEADER, unix.NLM_F_REQUEST)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(s.Name)))
	same := false
	err := k.do(req, func(msg []byte) {
		a := nfattr.Parse(msg[nfattr.HeaderLen:])
		same = nfattr.String(a[nl.IPSET_ATTR_TYPENAME]) == string(s.Type) &&
			len(a[nl.IPSET_ATTR_FAMILY]) == 1 && a[nl.IPSET_ATTR_FAMILY][0] == family(s.IPv6)
	})
	if err == nil && !same {
		err = errMismatch
	}
	return wrap("create", s.Name, err)
}

// Destroy implements Interface.
func (k *Kernel) Destroy(name string) error {
	req := k.request(nl.IPSET_CMD_DESTROY, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_EXCL)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	err := k.do(req, nil)
	if err == nil {
		k.writer.count(Set{Name: name})
	}
	return wrap("destroy", name, err)
}

// Replace implements Interface: the new set is filled under a name of its own and swapped
// with the old one.
func (k *Kernel) Replace(s Set, entries ...Entry) error {
	next := s
	next.Name = replacement(s.Name)
	if err := k.Destroy(next.Name); err != nil && !IsNotFound(err) {
		return err
	}
	if err := k.Ensure(next); err != nil {
		return err
	}
	defer k.writer.count(Set{Name: next.Name})
	err := k.Add(next.Name, entries...)
	if err == nil {
		err = k.exchange(nl.IPSET_CMD_SWAP, next.Name, s.Name)
	}
	if IsMismatch(err) { // of another type: it can go if no rule refers to it
		if k.Destroy(s.Name) == nil {
			err = k.exchange(nl.IPSET_CMD_RENAME, next.Name, s.Name)
		}
	} else if IsNotFound(err) {
		err = k.exchange(nl.IPSET_CMD_RENAME, next.Name, s.Name)
	}
	if err == nil {
		k.writer.count(s)
	}
	if gone := k.Destroy(next.Name); err == nil && gone != nil && !IsNotFound(gone) {
		err = gone
	}
	return err
}

// replacement is the name of the set that is going to replace another one.
func replacement(name string) string {
	prefix, _, _ := strings.Cut(name, "-")
	return prefix + "-replacement"
}

// exchange swaps two sets, or renames the first.
func (k *Kernel) exchange(cmd int, from, to string) error {
	req := k.request(cmd, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(from)))
	// IPSET_ATTR_SETNAME2 of linux/netfilter/ipset/ip_set.h has the number of the type's name.
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(to)))
	err := k.do(req, nil)
	if cmd == nl.IPSET_CMD_SWAP && errors.Is(err, nl.IPSetError(nl.IPSET_ERR_EXIST_SETNAME2)) {
		err = syscall.ENOENT // so the kernel says that there is no second set
	}
	return wrap("replace", to, err)
}

// revision asks for the newest revision of a type that the kernel has, so that
// whatever library version set an older default does not matter.
func (k *Kernel) revision(t Type) (uint8, error) {
	req := k.request(nl.IPSET_CMD_TYPE, unix.NLM_F_REQUEST)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(string(t))))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FAMILY, nl.Uint8Attr(unix.NFPROTO_IPV4)))
	var rev uint8
	err := k.do(req, func(msg []byte) {
		if v := nfattr.Parse(msg[nfattr.HeaderLen:])[nl.IPSET_ATTR_REVISION]; len(v) == 1 {
			rev = v[0]
		}
	})
	return rev, err
}

func (k *Kernel) request(cmd, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(cmd|unix.NFNL_SUBSYS_IPSET<<8, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: k.socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	return req
}

func (k *Kernel) do(req *nl.NetlinkRequest, each func(msg []byte)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if each != nil {
			each(msg)
		}
		return true
	})
	return own(err)
}

// own separates errors of ip sets in netlink's result from errors of the system.
func own(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errnoError(errno)
	}
	return err
}

// errnoError separates errors of ip sets from errors of the system.
func errnoError(errno syscall.Errno) error {
	if int(errno) >= nl.IPSET_ERR_PRIVATE {
		return nl.IPSetError(uintptr(errno))
	}
	return errno
}

func wrap(op, set string, err error) error {
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
