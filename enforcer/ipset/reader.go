package ipset

import (
	"encoding/binary"
	"sync"
	"syscall"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// reader is the socket that listings are asked on. The kernel tells nobody of changes
// to sets, so they are looked at again and again: a node with 10,000 of them must
// not notice.
type reader struct {
	mu   sync.Mutex
	fd   int
	seq  uint32
	out  []byte
	in   []byte
	most int // sets, the last time that all sizes were asked for
}

// openReader opens the socket in the calling thread's network namespace.
func openReader() (*reader, error) {
	fd, err := openSocket(unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// The kernel fills as much as it once saw asked for, up to this.
	return &reader{fd: fd, in: make([]byte, 32<<10)}, nil
}

func (r *reader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	unix.Close(r.fd)
	r.fd = -1
}

// list asks for one set, or with "" for all, and hands each message's attributes
// over. The caller holds mu.
func (r *reader) list(name string, flags uint32, each func(attrs []byte)) error {
	r.seq++
	b, begin := nfattr.AppendHeader(r.out[:0], unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, r.seq)
	b = nfattr.AppendUint8(b, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	if name != "" {
		b = nfattr.AppendString(b, nl.IPSET_ATTR_SETNAME, name)
	}
	if flags != 0 {
		b = nfattr.AppendUint32(b, nl.IPSET_ATTR_FLAGS, flags)
	}
	nfattr.EndMessage(b, begin)
	r.out = b
	if _, err := unix.Write(r.fd, b); err != nil {
		return err
	}
	for {
		n, err := unix.Read(r.fd, r.in)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := r.read(r.in[:n], each); done || err != nil {
			return err
		}
	}
}

// read takes what came of the answer, and tells whether that was the end of it.
func (r *reader) read(b []byte, each func(attrs []byte)) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return true, errSilent
		}
		body, typ := b[unix.SizeofNlMsghdr:length], binary.NativeEndian.Uint16(b[4:])
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != r.seq: // of an answer that was given up
		case typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE:
			if len(body) < 4 {
				return true, errSilent
			}
			if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				return true, errnoError(syscall.Errno(errno))
			}
			return true, nil
		case len(body) >= nfattr.HeaderLen:
			each(body[nfattr.HeaderLen:])
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return false, nil
}
