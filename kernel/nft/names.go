package nft

import (
	"fmt"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// familyWords are nft's words for families (NFPROTO_* of linux/netfilter.h).
var familyWords = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_ARP: "arp",
	unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_IPV6: "ip6",
}

// tableNames returns the tables of the calling thread's network namespace. The
// program nft reads every rule of the host before it prints their names.
func tableNames() ([]Named, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC, Version: nl.NFNETLINK_V0})
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, fmt.Errorf("list nft tables: %w", err)
	}
	var out []Named
	for _, m := range msgs {
		if len(m) < nfattr.HeaderLen {
			continue
		}
		if name := nfattr.Parse(m[nfattr.HeaderLen:])[unix.NFTA_TABLE_NAME]; name != nil {
			out = append(out, Named{familyWords[m[0]], nfattr.String(name)})
		}
	}
	return out, nil
}
