package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/netfilter/nf_tables.h: the type of counter objects, and the attribute of
// their packets.
const (
	objectCounter  = 1
	counterPackets = 2
)

var errNoCounter = errors.New("the kernel told of none")

// Denied returns how many packets were denied since the tables were made, those that
// were not logged among them. It is 0 where the tables are not there, and on fakes.
func (t *Tables) Denied() (uint64, error) {
	if t.list == nil {
		return 0, nil
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETOBJ, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(unix.NFTA_OBJ_TABLE, nl.ZeroTerminated(TableName)))
	req.AddData(nl.NewRtAttr(unix.NFTA_OBJ_NAME, nl.ZeroTerminated(deniedCounter)))
	req.AddData(nl.NewRtAttr(unix.NFTA_OBJ_TYPE, binary.BigEndian.AppendUint32(nil, objectCounter)))
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWOBJ)
	if errors.Is(err, syscall.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the counter of denied packets: %w", err)
	}
	for _, m := range msgs {
		if len(m) < nfattr.HeaderLen {
			continue
		}
		data := nfattr.Parse(m[nfattr.HeaderLen:])[unix.NFTA_OBJ_DATA]
		if n := nfattr.Parse(data)[counterPackets]; len(n) == 8 {
			return binary.BigEndian.Uint64(n), nil
		}
	}
	return 0, fmt.Errorf("read the counter of denied packets: %w", errNoCounter)
}
