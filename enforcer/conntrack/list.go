package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"syscall"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listPatience is how long the kernel may be silent in a listing.
const listPatience = 10 // seconds

// listBuffer is what one read takes: more than the kernel writes at a time
// (32 KiB, from netlink_dump).
const listBuffer = 64 << 10

// lister is the socket for listings. A table of 100,000 connections is 20 MB of
// messages, few of which anybody asked for: they are read into one buffer and
// rejected by their source's bytes.
type lister struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	out []byte
	in  []byte
}

// openLister opens the socket in the calling thread's network namespace.
func openLister() (*lister, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	// Connected to the kernel, nobody else can send to it.
	err = errors.Join(
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: listPatience}))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &lister{fd: fd, in: make([]byte, listBuffer)}, nil
}

func (l *lister) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	unix.Close(l.fd)
	l.fd = -1
}

// byFamily splits addresses into IPv4's and IPv6's.
func byFamily(all []netip.Addr) [2][]netip.Addr {
	var out [2][]netip.Addr
	for _, a := range all {
		i := 0
		if a.Is6() {
			i = 1
		}
		out[i] = append(out[i], a)
	}
	return out
}

func (q Query) marked(f Flow) bool { return f.Mark&q.Mask == q.Mark&q.Mask }

// Flows implements Interface.
func (k *Kernel) Flows(q Query) ([]Flow, error) {
	var out []Flow
	for _, sources := range byFamily(q.Sources) {
		if len(sources) == 0 {
			continue
		}
		q.Sources = sources
		var err error
		if out, err = k.lister.list(out, q); err != nil {
			return nil, fmt.Errorf("list connections of %s: %w", sources[0], err)
		}
	}
	return out, nil
}

// list appends the connections of a query, whose sources are of one family.
func (l *lister) list(out []Flow, q Query) ([]Flow, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask(q)
	if _, err := unix.Write(l.fd, l.out); err != nil {
		return nil, err
	}
	wanted := make(map[netip.Addr]bool, len(q.Sources))
	for _, a := range q.Sources {
		wanted[a] = true
	}
	err := l.messages(func(msg []byte) {
		if a, ok := source(msg); ok && !wanted[a] {
			return
		}
		if f, ok := parseFlow(msg[nfattr.HeaderLen:]); ok && wanted[f.Src.Addr()] && q.marked(f) {
			out = append(out, f)
		}
	})
	return out, err
}

// ask writes the request of a query. The kernel looks through its table either
// way; what it leaves out itself costs no message. Kernels that do not know a
// filter say more than was asked for.
func (l *lister) ask(q Query) {
	l.seq++
	b, begin := nfattr.AppendHeader(l.out[:0], nl.IPCTNL_MSG_CT_GET|unix.NFNL_SUBSYS_CTNETLINK<<8, unix.NLM_F_DUMP, l.seq)
	first := q.Sources[0]
	if first.Is6() {
		b[begin+unix.SizeofNlMsghdr] = unix.AF_INET6
	}
	if q.Mask != 0 {
		b = nfattr.AppendUint32(b, nl.CTA_MARK, q.Mark&q.Mask)
		b = nfattr.AppendUint32(b, ctaMarkMask, q.Mask)
	}
	if len(q.Sources) == 1 && first.Is4() {
		b = appendSource(b, first)
	}
	nfattr.EndMessage(b, begin)
	l.out = b
}

// appendSource asks for one source's connections alone. Only for IPv4: Linux up to
// at least 6.18 takes the comparison of IPv6 addresses the wrong way round here
// and returns every connection but those asked for.
func appendSource(b []byte, a netip.Addr) []byte {
	b, tuple := nfattr.Begin(b, nl.CTA_TUPLE_ORIG)
	b, ip := nfattr.Begin(b, nl.CTA_TUPLE_IP)
	b = nfattr.Append(b, nl.CTA_IP_V4_SRC, a.AsSlice())
	nfattr.End(b, ip)
	nfattr.End(b, tuple)
	b, filter := nfattr.Begin(b, ctaFilter)
	// The flags are in the host's order, unlike the rest.
	b = nfattr.Append(b, ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterFlagSrc))
	nfattr.End(b, filter)
	return b
}

// messages calls each with the messages of the listing that was asked for last,
// until its end. Those of an earlier one, that broke off, are passed over.
func (l *lister) messages(each func(msg []byte)) error {
	for {
		n, err := unix.Read(l.fd, l.in)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for b := l.in[:n]; len(b) > 0; {
			length := 0
			if len(b) >= unix.SizeofNlMsghdr {
				length = int(binary.NativeEndian.Uint32(b))
			}
			if length < unix.SizeofNlMsghdr || length > len(b) {
				return io.ErrUnexpectedEOF
			}
			if binary.NativeEndian.Uint32(b[8:]) == l.seq {
				body := b[unix.SizeofNlMsghdr:length]
				switch binary.NativeEndian.Uint16(b[4:]) {
				case unix.NLMSG_DONE, unix.NLMSG_ERROR:
					return ended(body)
				default:
					each(body)
				}
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// ended reads the last message of a listing.
func ended(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
