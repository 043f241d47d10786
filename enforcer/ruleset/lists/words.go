package lists

import (
	"fmt"
	"strings"

	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// Words are those of rules of one kind.
type Words struct {
	Verdicts [Pass]string // of rules that decide, by action
	Named    string       // the chain of rules by name that accept
	Subject  string       // of a packet, in entry sets
	Peer     string       // of a packet: the end that rules are about
}

// The words of a packet.
const (
	Source      = "%[2]s saddr"
	Destination = "%[2]s daddr"
	// Node is the loopback address, whatever the source is: it stands for the node in keys of entries.
	Node = "%[4]s"
)

// Family is the words of a family of addresses.
type Family struct {
	Suffix, IP, Addr, DNAT string
	Node, Loopback         string // of the node, and its value
}

// Families are both.
var Families = []Family{{"4", "ip", "ipv4_addr", "ip", "ip saddr & 0.0.0.0 ^ 127.0.0.1", "127.0.0.1"}, {"6", "ip6", "ipv6_addr", "ip6", "ip6 saddr & :: ^ ::1", "::1"}}

// Each renders rules once for each family; %[1]s is the set suffix, %[2]s the
// protocol word, %[3]s the family word of dnat, %[4]s the word for the node.
func Each(templates ...string) []string {
	var out []string
	for _, f := range Families {
		for _, t := range templates {
			out = append(out, fmt.Sprintf(t+"%.0[1]s%.0[2]s%.0[3]s%.0[4]s", f.Suffix, f.IP, f.DNAT, f.Node))
		}
	}
	return out
}

// entryMatches renders a rule about what was dialled, without its verdict. A packet that matches
// uses the entry: the set is asked last.
func entryMatches(set string, ports []policy.PortRange, subject string) (out []string) {
	entry := subject + " . ct original %[2]s daddr"
	at := "@" + timed.EntriesPrefix + set + "-%[1]s "
	for _, p := range PortLists(ports) {
		out = append(out, Each(p.Dialled()+entry+" "+at)...)
	}
	return out
}

// Untracked renders rules for packets that another program exempted from tracking: what they
// dialled is what they reach.
func Untracked(rules []string) (out []string) {
	words := strings.NewReplacer("ct original proto-dst", "th dport", "ct original ", "")
	for _, r := range rules {
		out = append(out, words.Replace(r))
	}
	return out
}
