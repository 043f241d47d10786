package underlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// object is a nexthop object (`ip nexthop`).
type object struct {
	gateway net.IP
	device  int
	fdb     bool // of a forwarding database: a tunnel's peer, not a router
}

// nhaFDB is NHA_FDB of linux/nexthop.h.
const nhaFDB = 11

// nexthopObjects lists the nexthop objects; kernels before 5.3 have none.
func (k *Kernel) nexthopObjects() (out []object, err error) {
	err = k.dump(unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOP, unix.RTM_NEWNEXTHOP, func(msg []byte) {
		if len(msg) < unix.SizeofNhmsg {
			return
		}
		var o object
		nfattr.Each(msg[unix.SizeofNhmsg:], func(typ int, value []byte) {
			switch {
			case typ == unix.NHA_OIF && len(value) == 4:
				o.device = int(binary.NativeEndian.Uint32(value))
			case typ == unix.NHA_GATEWAY:
				o.gateway = net.IP(append([]byte(nil), value...))
			case typ == nhaFDB:
				o.fdb = true
			}
		})
		out = append(out, o)
	}, raw(make([]byte, unix.SizeofNhmsg)))
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list nexthop objects: %w", err)
	}
	return out, nil
}

// raw is a header of a request in bytes.
type raw []byte

// Len implements nl.NetlinkRequestData.
func (r raw) Len() int { return len(r) }

// Serialize implements nl.NetlinkRequestData.
func (r raw) Serialize() []byte { return r }

// forwarding is an entry of a tunnel's forwarding database.
type forwarding struct {
	device int
	to     netip.Addr
	port   uint16 // 0: the device's
}

// forwardingDatabase lists the entries that lead to another host.
func (k *Kernel) forwardingDatabase() (out []forwarding, err error) {
	header := make(raw, unix.SizeofNdMsg)
	header[0] = unix.AF_BRIDGE
	err = k.dump(unix.NETLINK_ROUTE, unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, func(msg []byte) {
		if f, ok := parseForwarding(msg); ok {
			out = append(out, f)
		}
	}, header)
	if err != nil {
		return nil, fmt.Errorf("list the forwarding databases: %w", err)
	}
	return out, nil
}

// parseForwarding reads a message of the neighbour table (struct ndmsg and attributes); false
// if it is no entry that leads to another host.
func parseForwarding(msg []byte) (f forwarding, ok bool) {
	if len(msg) < unix.SizeofNdMsg || msg[0] != unix.AF_BRIDGE {
		return f, false
	}
	f.device = int(int32(binary.NativeEndian.Uint32(msg[4:])))
	nfattr.Each(msg[unix.SizeofNdMsg:], func(typ int, value []byte) {
		switch {
		case typ == unix.NDA_DST:
			f.to, ok = address(value)
		case typ == unix.NDA_PORT && len(value) == 2:
			f.port = binary.BigEndian.Uint16(value)
		}
	})
	return f, ok
}

// endpoints lists the endpoints of a WireGuard device's peers. A peer without one dials this
// node, and is answered.
func (k *Kernel) endpoints(device int) (out []netip.AddrPort, err error) {
	family, err := k.h.GenlFamilyGet("wireguard")
	if err == nil {
		err = k.dump(unix.NETLINK_GENERIC, family.ID, family.ID, func(msg []byte) {
			out = append(out, parseEndpoints(msg)...)
		}, &nl.Genlmsg{Command: unix.WG_CMD_GET_DEVICE, Version: unix.WG_GENL_VERSION}, nl.NewRtAttr(unix.WGDEVICE_A_IFINDEX, nl.Uint32Attr(uint32(device))))
	}
	if err != nil {
		return nil, fmt.Errorf("list the WireGuard peers of interface %d: %w", device, err)
	}
	return out, nil
}

// parseEndpoints reads a message of WG_CMD_GET_DEVICE.
func parseEndpoints(msg []byte) (out []netip.AddrPort) {
	if len(msg) < nl.SizeofGenlmsg {
		return nil
	}
	nfattr.Each(msg[nl.SizeofGenlmsg:], func(typ int, peers []byte) {
		if typ != unix.WGDEVICE_A_PEERS {
			return
		}
		nfattr.Each(peers, func(_ int, peer []byte) {
			nfattr.Each(peer, func(typ int, value []byte) {
				if typ == unix.WGPEER_A_ENDPOINT {
					if e, ok := parseSockaddr(value); ok {
						out = append(out, e)
					}
				}
			})
		})
	})
	return out
}

// parseSockaddr reads a struct sockaddr_in or sockaddr_in6.
func parseSockaddr(b []byte) (netip.AddrPort, bool) {
	if len(b) < unix.SizeofSockaddrInet4 {
		return netip.AddrPort{}, false
	}
	ip := b[4:8]
	if binary.NativeEndian.Uint16(b) == unix.AF_INET6 {
		if len(b) < unix.SizeofSockaddrInet6 {
			return netip.AddrPort{}, false
		}
		ip = b[8:24]
	}
	a, ok := address(ip)
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[2:])), ok
}
