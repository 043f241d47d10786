package ipset

import (
	"bytes"
	"encoding/binary"
	"sync"
	"syscall"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// counter is the socket that sizes are asked on. The kernel tells nobody of changes
// to sets, so they are asked for again and again: a node with 10,000 of them must
// not notice.
type counter struct {
	mu   sync.Mutex
	fd   int
	seq  uint32
	out  []byte
	in   []byte
	most int // sets, the last time
}

// openCounter opens the socket in the calling thread's network namespace.
func openCounter() (*counter, error) {
	fd, err := openSocket(unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// The kernel fills as much as it once saw asked for, up to this.
	return &counter{fd: fd, in: make([]byte, 32<<10)}, nil
}

func (c *counter) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	unix.Close(c.fd)
	c.fd = -1
}

// Sizes implements Interface.
func (k *Kernel) Sizes(names ...string) (map[string]int, error) {
	c := k.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(names) == 0 {
		sizes := make(map[string]int, c.most)
		err := c.ask("", sizes)
		c.most = len(sizes)
		return sizes, wrap("list", "sizes", err)
	}
	sizes := make(map[string]int, len(names))
	for _, n := range names {
		if err := wrap("list", n, c.ask(n, sizes)); err != nil && !IsNotFound(err) {
			return nil, err
		}
	}
	return sizes, nil
}

// ask adds the size of one set, or with "" of all.
func (c *counter) ask(name string, sizes map[string]int) error {
	c.seq++
	b, begin := nfattr.AppendHeader(c.out[:0], unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, c.seq)
	b = nfattr.AppendUint8(b, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	if name != "" {
		b = nfattr.AppendString(b, nl.IPSET_ATTR_SETNAME, name)
	}
	b = nfattr.AppendUint32(b, nl.IPSET_ATTR_FLAGS, flagListHeader)
	nfattr.EndMessage(b, begin)
	c.out = b
	if _, err := unix.Write(c.fd, b); err != nil {
		return err
	}
	for {
		n, err := unix.Read(c.fd, c.in)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := c.read(c.in[:n], sizes); done || err != nil {
			return err
		}
	}
}

// read takes what came of the answer, and tells whether that was the end of it.
func (c *counter) read(b []byte, sizes map[string]int) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return true, errSilent
		}
		body, typ := b[unix.SizeofNlMsghdr:length], binary.NativeEndian.Uint16(b[4:])
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != c.seq: // of an answer that was given up
		case typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE:
			if len(body) < 4 {
				return true, errSilent
			}
			if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				return true, errnoError(syscall.Errno(errno))
			}
			return true, nil
		case len(body) >= nfattr.HeaderLen:
			count(body[nfattr.HeaderLen:], sizes)
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return false, nil
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
