package scenarios

import (
	"cmp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
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

// TestNodesWithoutIPTables: with "dataplane auto" an agent chooses nftables where the programs
// of iptables or the kernel's ipset and xtables are missing, says why, and enforces.
func TestNodesWithoutIPTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		programs, kernel bool // what the node has
		says             string
	}{
		{"no programs", false, true, "iptables-restore"},
		{"no modules", true, false, "ipset type"},
		{"neither", false, false, "iptables-restore"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, lab.Routed)
			fatal.If(t, s.agent.SetDataplane("auto"))
			s.agent.NoXtables = !c.kernel
			if !c.programs {
				path, err := lab.OnlyPrograms(t.TempDir(), "nft")
				fatal.If(t, err)
				s.agent.Env = []string{path}
			}
			s.startClient(policy("www", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{name: www.example.org}]"))
			is, err := s.agent.Status()
			if err != nil || is.Dataplane.Name != "nftables" || !strings.Contains(is.Dataplane.Reason, c.says) {
				t.Errorf("dataplane %+v, %v, want nftables, since there is no %s", is.Dataplane, err, c.says)
			}
			works := func(when string) {
				t.Helper()
				for _, a := range s.resolve("a", "www.example.org", dns.TypeA) {
					s.expect("a", "tcp", a.String()+":80", lab.Answered)
				}
				if s.expect("a", "tcp", "198.51.100.2:80", lab.Refused); t.Failed() {
					t.Fatal(when)
				}
			}
			works("with the first agent")
			fatal.If(t, s.agent.Stop(syscall.SIGTERM))
			fatal.If(t, s.agent.Start())
			works("with the next agent")
			s.nothingLeftOf("iptables")
		})
	}
}
