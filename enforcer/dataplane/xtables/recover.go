package xtables

import (
	"net/netip"
	"strings"

	"github.com/namegate/namegate/kernel/iptables"
)

// recoverRules reads the state of addresses from an earlier agent's rules in the chains
// of each variant: the PodID of the pod whose rules judged it, and the ID of its list of
// rules about peers, if it had one.
func recoverRules(variants []iptables.Everything) (pods, lists map[netip.Addr]string) {
	pods, lists = map[netip.Addr]string{}, map[netip.Addr]string{}
	for _, all := range variants {
		for _, tables := range all {
			for name, rules := range tables["mangle"] {
				if !strings.HasPrefix(name, chainNames) && !strings.HasPrefix(name, chainPeers) {
					continue
				}
				for _, r := range rules {
					a, to := leaf(r)
					if id, ok := strings.CutPrefix(to, podChainPrefix); ok {
						pods[a] = id
					} else if id, ok := strings.CutPrefix(to, listChainPrefix); ok {
						lists[a] = id
					} else if to == chainAllow {
						lists[a] = ""
					}
				}
			}
		}
	}
	return pods, lists
}

// leaf reads a rule of a leaf of a dispatch tree: -s ADDRESS -g CHAIN. to is "" for any
// other rule.
func leaf(rule string) (a netip.Addr, to string) {
	words := strings.Fields(rule)
	if len(words) != 4 || words[0] != "-s" || words[2] != "-g" {
		return a, ""
	}
	prefix, err := netip.ParsePrefix(words[1])
	if err != nil || !prefix.IsSingleIP() {
		return a, ""
	}
	return prefix.Addr(), words[3]
}
