package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ask sends a request about objects of nftables in the calling thread's network
// namespace and hands over the family and the attributes of each reply. An object that is
// not there has no reply. A listing that changed meanwhile is handed over all the same:
// the error is nl.ErrDumpInterrupted.
func ask(request int, f uint8, flags int, each func(f uint8, attrs []byte), about ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|request, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: f, Version: nl.NFNETLINK_V0})
	for _, a := range about {
		req.AddData(a)
	}
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer nfattr.CloseLater(s.Close)
	if err := s.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return err
	}
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: s}}
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		if errors.Is(err, syscall.ENOENT) {
			return nil
		}
		return err
	}
	for _, m := range msgs {
		// Some kernels list every family.
		if len(m) >= nfattr.HeaderLen && (f == unix.NFPROTO_UNSPEC || m[0] == f) {
			each(m[0], m[nfattr.HeaderLen:])
		}
	}
	return err
}

// dump lists objects. One listing need not be consistent: a reader compares two.
func dump(request int, f uint8, each func(attrs []byte), about ...*nl.RtAttr) error {
	err := ask(request, f, unix.NLM_F_DUMP, func(_ uint8, attrs []byte) { each(attrs) }, about...)
	if errors.Is(err, nl.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// text is an attribute that holds a name.
func text(typ int, s string) *nl.RtAttr { return nl.NewRtAttr(typ, nl.ZeroTerminated(s)) }

// u32 reads a number of 32 bits, 0 without one.
func u32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// tableNames returns the tables of the calling thread's network namespace. The
// program nft reads every rule of the host before it prints their names.
func tableNames() ([]Table, error) {
	words := map[uint8]string{}
	for word, f := range wire.FamilyNumbers {
		words[f] = string(word)
	}
	var out []Table
	err := ask(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC, unix.NLM_F_DUMP, func(f uint8, attrs []byte) {
		out = append(out, Table{words[f], nfattr.String(nfattr.Parse(attrs)[unix.NFTA_TABLE_NAME])})
	})
	if err != nil {
		return nil, fmt.Errorf("list nft tables: %w", err)
	}
	return out, nil
}

// generation returns the number of the last change of nftables in the calling thread's
// network namespace.
func generation() (id uint32, err error) {
	err = ask(unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, 0, func(_ uint8, attrs []byte) {
		id = u32(nfattr.Parse(attrs)[unix.NFTA_GEN_ID])
	})
	if err == nil && id == 0 {
		err = errNoGeneration
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nftables: %w", err)
	}
	return id, nil
}

var errNoGeneration = errors.New("the kernel reports none")

// Denied returns the number of packets that were denied since the tables were made,
// including unlogged ones. It is 0 without the tables, and on fakes.
func (t *Tables) Denied() (packets uint64, err error) {
	if t.list == nil {
		return 0, nil
	}
	err = ask(unix.NFT_MSG_GETOBJ, unix.NFPROTO_INET, 0, func(_ uint8, attrs []byte) {
		counter := nfattr.Parse(nfattr.Parse(attrs)[unix.NFTA_OBJ_DATA])
		if n := counter[unix.NFTA_COUNTER_PACKETS]; len(n) == 8 {
			packets = binary.BigEndian.Uint64(n)
		}
	}, text(unix.NFTA_OBJ_TABLE, TableName), text(unix.NFTA_OBJ_NAME, deniedCounter),
		nl.NewRtAttr(unix.NFTA_OBJ_TYPE, nl.BEUint32Attr(unix.NFT_OBJECT_COUNTER)))
	if err != nil {
		return 0, fmt.Errorf("read the counter of denied packets: %w", err)
	}
	return packets, nil
}
