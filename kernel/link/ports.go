package link

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// skipStats leaves the counters out of a listing (RTEXT_FILTER_SKIP_STATS of
// linux/rtnetlink.h): they are most of it.
const skipStats = 1 << 3

// port is an interface, as a port of a bridge.
type port struct {
	name  string
	index int
	// peer is the other end of a veth, by its number in its own network namespace.
	peer int
	// behind are the addresses in that namespace, each with the interface that has it:
	// none where the kernel does not tell. Loopback and link-local ones are left out.
	behind map[netip.Addr]int

	netns int // the number of the peer's namespace, -1 without one
}

// portsOf lists the ports of a bridge and the addresses behind them.
func (k *Kernel) portsOf(bridge int) ([]port, error) {
	ports, err := consistent(func() ([]port, error) { return k.listLinks(bridge) })
	if err != nil {
		return nil, err
	}
	for i := range ports {
		p := &ports[i]
		if p.netns < 0 || !k.strict {
			continue
		}
		p.behind, err = consistent(func() (map[netip.Addr]int, error) { return k.listBehind(p.netns) })
		// The namespace may be gone meanwhile, or not be ours to look into.
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			return nil, err
		}
	}
	return ports, nil
}

// dump asks for a listing on the socket of dumps.
func (k *Kernel) dump(typ, reply uint16, header nl.NetlinkRequestData, each func(msg []byte), attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(int(typ), unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.dumps}
	req.AddData(header)
	for _, a := range attrs {
		req.AddData(a)
	}
	return req.ExecuteIter(unix.NETLINK_ROUTE, reply, func(msg []byte) bool {
		each(msg)
		return true
	})
}

// listLinks lists the ports of a bridge, with 0 all interfaces.
func (k *Kernel) listLinks(bridge int) ([]port, error) {
	filters := []*nl.RtAttr{nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats))}
	if bridge != 0 {
		filters = append(filters, nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(bridge))))
	}
	var out []port
	err := k.dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), func(msg []byte) {
		p, master := port{index: int(nl.DeserializeIfInfomsg(msg).Index), netns: -1}, 0
		nfattr.Each(msg[unix.SizeofIfInfomsg:], func(typ int, value []byte) {
			switch typ {
			case unix.IFLA_IFNAME:
				p.name = nfattr.String(value)
			case unix.IFLA_MASTER:
				master = number(value)
			case unix.IFLA_LINK:
				p.peer = number(value)
			case unix.IFLA_LINK_NETNSID:
				p.netns = number(value)
			}
		})
		if bridge == 0 || master == bridge {
			out = append(out, p)
		}
	}, filters...)
	return out, err
}

// listBehind lists the addresses in a network namespace, by its number here.
func (k *Kernel) listBehind(netns int) (map[netip.Addr]int, error) {
	out := map[netip.Addr]int{}
	err := k.dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC), func(msg []byte) {
		var local, other netip.Addr
		answered := false // for that namespace, and not for this one
		nfattr.Each(msg[unix.SizeofIfAddrmsg:], func(typ int, value []byte) {
			switch typ {
			case unix.IFA_LOCAL:
				local, _ = netip.AddrFromSlice(value)
			case unix.IFA_ADDRESS:
				other, _ = netip.AddrFromSlice(value)
			case unix.IFA_TARGET_NETNSID:
				answered = number(value) == netns
			}
		})
		if !local.IsValid() {
			local = other
		}
		if answered && local.IsGlobalUnicast() {
			out[local] = int(nl.DeserializeIfAddrmsg(msg).Index)
		}
	}, nl.NewRtAttr(unix.IFA_TARGET_NETNSID, nl.Uint32Attr(uint32(netns))))
	return out, err
}

func number(b []byte) int {
	if len(b) != 4 {
		return -1
	}
	return int(int32(binary.NativeEndian.Uint32(b)))
}
