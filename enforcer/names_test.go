package enforcer

import (
	"net/netip"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
)

// Names that this agent's objects have in the kernel.
const (
	chainPrefix = xtables.ChainPrefix
	chainHome   = "NAMEGATE-HOME"
	chainNames  = "NAMEGATE-NAMES"
	chainNamed  = "NAMEGATE-NAMED"
	chainDrop   = "NAMEGATE-DROP"

	setSelected   = "selected"
	setDispatched = "judged"
	setHome       = "home"
)

var (
	ipVersions = []iptables.Family{iptables.IPv4, iptables.IPv6}
	tables     = []string{"security", "mangle"} // that have chains of ours
)

func setPrefix(f iptables.Family) string {
	return map[iptables.Family]string{iptables.IPv4: "NG4-", iptables.IPv6: "NG6-"}[f]
}

func versionOf(a netip.Addr) iptables.Family {
	if a.Is6() {
		return iptables.IPv6
	}
	return iptables.IPv4
}

// removeOurs adds to a transaction the end of our chains of a table and of every rule that
// leads to one.
func removeOurs(tx *iptables.Transaction, all iptables.Chains) {
	for name, rules := range all {
		if strings.HasPrefix(name, chainPrefix) {
			tx.Delete(name)
			continue
		}
		for _, r := range rules {
			if strings.HasPrefix(iptables.Target(r), chainPrefix) {
				tx.Remove(name, r)
			}
		}
	}
}
