package enforcer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// reset has a segment with RST come in from a pod: a flow table that has the connection gives it back
// to the rules, which drop the segment. The caller holds apply.
func (e *Enforcer) reset(f conntrack.Flow) {
	h, home := e.homes[f.Src.Addr()]
	if !home || e.k.Inject == nil {
		return
	}
	iface := h.Iface
	if h.Bridged() {
		iface = h.Port
	}
	if err := e.k.Inject(iface, resetPacket(f.Src, f.Dst)); err != nil {
		e.log.Warn("a connection in a flow table is not reset", "connection", connectionText(f), "error", err)
	}
}

// notCutMost bounds the connections of the status.
const notCutMost = 16

// notCut are the connections without admission that may still be in a flow table.
func (e *Enforcer) notCut() (out []string) {
	for _, f := range e.flows.NotCut() {
		out = append(out, connectionText(f))
	}
	slices.Sort(out)
	return out[:min(len(out), notCutMost)]
}

func connectionText(f conntrack.Flow) string {
	return fmt.Sprintf("%s %s to %s", policy.Protocol(f.Protocol), f.Src, f.Dst)
}

// offloading returns the flow tables that have an interface of an isolated pod, by the pod's
// address. The caller holds apply.
func (e *Enforcer) offloading() map[netip.Addr]string {
	tables, err := e.k.Tables.Flowtables()
	if err != nil {
		e.log.Warn("it is unknown whether other programs offload connections of pods", "error", err)
	}
	out := map[netip.Addr]string{}
	for _, t := range tables {
		for _, p := range e.plan {
			for a, h := range p.Homes {
				if p.Isolated && (hasDevice(t, h.Iface) || h.Bridged() && hasDevice(t, h.Port)) {
					out[a] = t.String()
				}
			}
		}
	}
	return out
}

func hasDevice(t nft.Flowtable, iface string) bool {
	return slices.ContainsFunc(t.Devices, func(d string) bool {
		prefix, several := strings.CutSuffix(d, "*")
		return d == iface || several && strings.HasPrefix(iface, prefix)
	})
}
