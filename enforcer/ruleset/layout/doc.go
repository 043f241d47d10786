// Package layout renders a State as nft tables: Namegate's own, which intercept DNS packets
// and give their replies back, check the homes of addresses, and judge connections: admit,
// or log and deny. It is pure, but for the methods of InForce, which read and renew parts of the tables in the kernel.
//
// There are the tables "inet namegate", and "bridge namegate", which sees bridge ports
// that the inet family does not distinguish; and the second net, where subjects have sets of grants. While an agent runs,
// the elements of their sets change, and the chains and sets of ordered rules and of subjects come and go; the other chains
// never change.
//
// The package knows addresses, rules and sets by their names, and ports and peers as package policy has them:
// nothing of policies, names, or pods beyond their addresses.
package layout
