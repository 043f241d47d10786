package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/namegate/namegate/e2e/bench/figure"
)

// goal is a target of the design. One of the last three is set: the bound of the
// ratio, of the value, or of what the value is more than the peer's.
type goal struct {
	figure, peer, state string
	rate                int
	ratio, value, more  float64
}

// goals are the targets, as far as this benchmark measures them.
var goals = []goal{
	{figure: "dns.cached.cpu_us", peer: udpEcho, ratio: 1.6},
	{figure: "dns.cached.cpu_us", peer: corednsCache, ratio: 0.55},
	{figure: "dns.cached.cpu_us", peer: dnsmasqCache, ratio: 0.9},
	{figure: "dns.forwarded.cpu_us", peer: udpEcho, ratio: 3},
	{figure: "dns.forwarded.cpu_us", peer: corednsForward, ratio: 0.7},
	{figure: "dns.forwarded.cpu_us", peer: dnsmasqIPSet, ratio: 0.6},
	{figure: "dns.added_p99_us", peer: "direct", rate: 30, value: 1000},
	{figure: "dns.added_p99_us", peer: "direct", rate: 5000, value: 5000},
	{figure: "agent.rss_mib", peer: hourState(flatFrom), state: hourState(hours), ratio: 1.1}, // flat
	{figure: "dns.neighbour_p99_us", peer: "no-flood", rate: neighbourRate, more: 2000},
}

// find returns the figure that a goal is about.
func (g goal) find(figures []reported) (reported, bool) {
	for _, f := range figures {
		if f.Name == g.figure && f.Peer == g.peer && f.Rate == g.rate && f.State == g.state {
			return f, true
		}
	}
	return reported{}, false
}

// judge returns the measured number, the bound and whether it holds.
func (g goal) judge(f figure.Figure) (measured, bound string, met bool) {
	if g.ratio > 0 {
		return fmt.Sprintf("%.2f × (%.1f / %.1f %s)", f.Ratio, f.Value, f.PeerValue, f.Unit), fmt.Sprintf("≤ %.2f × %s", g.ratio, g.peer), f.Ratio <= g.ratio
	}
	if g.more > 0 {
		return fmt.Sprintf("%+.0f (%.0f - %.0f) %s", f.Value-f.PeerValue, f.Value, f.PeerValue, f.Unit), fmt.Sprintf("≤ %s + %g %s", g.peer, g.more, f.Unit), f.Value-f.PeerValue <= g.more
	}
	return fmt.Sprintf("%.1f %s", f.Value, f.Unit), fmt.Sprintf("≤ %g %s", g.value, f.Unit), f.Value <= g.value
}

// verdict shows each target beside what was measured.
func (b *bench) verdict() {
	w := tabwriter.NewWriter(b.notes, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfigure\ttarget\tmeasured\t\tothers took")
	doubt := false
	for _, g := range goals {
		f, ok := g.find(b.figures)
		if !ok {
			continue
		}
		measured, bound, met := g.judge(f.Figure)
		word := "met"
		if !met {
			word = "NOT MET"
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%.0f %% of a core\n", g.figure, at(g.rate), bound, measured, word, f.others*100)
		if f.others >= disturbed {
			doubt = true
		}
	}
	w.Flush()
	if doubt {
		fmt.Fprintf(b.notes, "\nWhere others took %.0f %% of a core or more the machine was too busy: measure again when it is quiet.\n", disturbed*100)
	}
}
