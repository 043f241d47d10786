package ground

import (
	"fmt"
	"text/tabwriter"

	"github.com/namegate/namegate/e2e/bench/figure"
)

// Goal is a target of the design for one figure. One of the last four is set.
type Goal struct {
	Figure, Peer, State string
	Rate                int
	// Ratio is the greatest ratio to the peer's value, Least the smallest.
	Ratio, Least float64
	// Value is the greatest value.
	Value float64
	// More is how much more than the peer's the value may be.
	More float64
}

// find returns the figure that a goal is about.
func (g Goal) find(figures []reported) (reported, bool) {
	for _, f := range figures {
		if f.Name == g.Figure && f.Peer == g.Peer && f.Rate == g.Rate && f.State == g.State {
			return f, true
		}
	}
	return reported{}, false
}

// judge returns the measured number, the bound and whether it holds.
func (g Goal) judge(f figure.Figure) (measured, bound string, met bool) {
	switch {
	case g.Ratio > 0:
		return ratio(f, 2), fmt.Sprintf("≤ %.2f × %s", g.Ratio, g.Peer), f.Ratio <= g.Ratio
	case g.Least > 0:
		return ratio(f, 3), fmt.Sprintf("≥ %.2f × %s", g.Least, g.Peer), f.Ratio >= g.Least
	case g.More > 0:
		return fmt.Sprintf("%+.0f (%.0f - %.0f) %s", f.Value-f.PeerValue, f.Value, f.PeerValue, f.Unit), fmt.Sprintf("≤ %s + %g %s", g.Peer, g.More, f.Unit), f.Value-f.PeerValue <= g.More
	}
	return fmt.Sprintf("%.1f %s", f.Value, f.Unit), fmt.Sprintf("≤ %g %s", g.Value, f.Unit), f.Value <= g.Value
}

func ratio(f figure.Figure, digits int) string {
	return fmt.Sprintf("%.*f × (%.1f / %.1f %s)", digits, f.Ratio, f.Value, f.PeerValue, f.Unit)
}

// verdict shows each target beside what was measured.
func (g *Ground) verdict(goals []Goal) {
	w := tabwriter.NewWriter(g.notes, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfigure\ttarget\tmeasured\t\tothers took")
	doubt := false
	for _, goal := range goals {
		f, ok := goal.find(g.figures)
		if !ok {
			continue
		}
		measured, bound, met := goal.judge(f.Figure)
		word := "met"
		if !met {
			word = "NOT MET"
		}
		name := goal.Figure
		if goal.Rate > 0 {
			name += fmt.Sprintf(" at %d q/s", goal.Rate)
		}
		if goal.State != "" {
			name += ", " + goal.State
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f %% of a core\n", name, bound, measured, word, f.others*100)
		if f.others >= figure.Disturbed {
			doubt = true
		}
	}
	w.Flush()
	if doubt {
		fmt.Fprintf(g.notes, "\nWhere others took %.0f %% of a core or more the machine was too busy: measure again when it is quiet.\n", figure.Disturbed*100)
	}
}
