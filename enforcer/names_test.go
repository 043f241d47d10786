package enforcer

import (
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// Names that this agent's objects have in the kernel.
const (
	chainPrefix = xtables.ChainPrefix
	chainHome   = "NAMEGATE-HOME"
	chainNames  = "NAMEGATE-NAMES"
	chainPeers  = "NAMEGATE-PEERS"
	chainAllow  = "NAMEGATE-ALLOW"
	chainDrop   = "NAMEGATE-DROP"
)

var (
	ipVersions = xtables.Families
	tables     = []string{"raw", "security", "mangle"} // that have chains of ours
	versionOf  = xtables.FamilyOf
	setPrefix  = xtables.SetPrefix
)

func grantSetName(r policy.PodRef, ports policy.PortSet, f iptables.Family) string {
	return xtables.GrantSet(r, ports, f == iptables.IPv6)
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
