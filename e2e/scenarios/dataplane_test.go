package scenarios

import (
	"cmp"
	"slices"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/short"
)

// The dataplanes.
const iptables, nftables = "iptables", "nftables"

// nodeKind is how a node joins its pods and which rules its agents write. A scenario whose
// subject is enforcement runs on each kind of eachDataplane; one of another subject leaves
// the dataplane empty: the environment variable DATAPLANE or the agent chooses; one of a
// mechanism that only one dataplane has names that one.
type nodeKind struct {
	network   lab.Network
	dataplane string
	variant   string // of iptables: legacy, nft, or "" for the agent's choice
}

// args are the arguments of the kind's agents.
func (k nodeKind) args() []string {
	if k.variant == "" {
		return nil
	}
	return []string{"--iptables", k.variant}
}

var (
	networks = []lab.Network{lab.Routed, lab.Bridged}
	routed   = nodeKind{network: lab.Routed}
)

// eachOf runs a test on kinds of nodes; onEach and onRouted are some.
type eachOf func(t *testing.T, f func(t *testing.T, kind nodeKind), dataplanes ...string)

// onEach runs a test on a routed node with iptables and on a bridged node with nftables, nightly on
// each network with each dataplane, or with some dataplanes, side by side with others. It is for
// what depends on how pods are joined: the home check, interception, what a bridge hands to
// netfilter. A verdict does not: eachDataplane and onRouted have one network.
func onEach(t *testing.T, f func(t *testing.T, kind nodeKind), dataplanes ...string) {
	for i, n := range networks {
		t.Run(string(n), func(t *testing.T) {
			t.Parallel()
			if len(dataplanes) == 0 && !short.Nightly() {
				dataplanes := []string{iptables, nftables}[i:][:1]
				eachDataplane(t, n, f, dataplanes...)
				return
			}
			eachDataplane(t, n, f, dataplanes...)
		})
	}
}

// onRouted is eachDataplane on the routed network.
func onRouted(t *testing.T, f func(t *testing.T, kind nodeKind), dataplanes ...string) {
	eachDataplane(t, lab.Routed, f, dataplanes...)
}

// onBridged is eachDataplane on the bridged network.
func onBridged(t *testing.T, f func(t *testing.T, kind nodeKind), dataplanes ...string) {
	eachDataplane(t, lab.Bridged, f, dataplanes...)
}

// staged runs a test on each of some kinds of nodes with what is made of the node, side by side
// with others.
func staged[S any](t *testing.T, on eachOf, of func(t *testing.T, kind nodeKind) S, f func(t *testing.T, s S)) {
	t.Parallel()
	on(t, func(t *testing.T, kind nodeKind) { f(t, of(t, kind)) })
}

// eachDataplane runs a test with each dataplane, or with some.
func eachDataplane(t *testing.T, network lab.Network, f func(t *testing.T, kind nodeKind), dataplanes ...string) {
	for _, d := range []string{iptables, nftables} {
		if len(dataplanes) == 0 || slices.Contains(dataplanes, d) {
			eachKind(t, f, nodeKind{network, d, ""})
		}
	}
}

// eachBackend is eachDataplane with both variants of iptables.
func eachBackend(t *testing.T, network lab.Network, f func(t *testing.T, kind nodeKind)) {
	eachKind(t, f, nodeKind{network, iptables, "legacy"}, nodeKind{network, iptables, "nft"}, nodeKind{network, nftables, ""})
}

// eachKind runs a test with kinds of nodes, where DATAPLANE names a dataplane with those of
// that dataplane alone.
func eachKind(t *testing.T, f func(t *testing.T, kind nodeKind), kinds ...nodeKind) {
	for _, k := range kinds {
		if k.dataplane != "" && cmp.Or(lab.Dataplane(), k.dataplane) != k.dataplane {
			continue
		}
		t.Run(cmp.Or(k.variant, k.dataplane, string(k.network)), func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

// eachNamed is a shell's loop over the objects of the table inet namegate whose names begin
// with a pattern, in $n. It fails without any.
func eachNamed(what, begins, do string) string {
	return `all=$(nft -t list table inet namegate | awk '$1 == "` + what + `" && $2 ~ /^` + begins + `/ { print $2 }')
	[ -n "$all" ] || exit 1
	for n in $all; do ` + do + ` || exit 1; done`
}
