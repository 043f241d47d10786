package ground

import (
	"bytes"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/bench/figure"
)

func cpuFigure(value, peer float64) figure.Figure {
	return figure.Figure{Name: "dns.cached.cpu_us", Value: value, Unit: "us"}.Against("udp-echo", peer)
}

func TestJudge(t *testing.T) {
	ratio, value, more := Goal{Ratio: 1.6, Peer: "udp-echo"}, Goal{Value: 1000}, Goal{More: 2000, Peer: "no-flood"}
	for _, c := range []struct {
		name string
		g    Goal
		f    figure.Figure
		met  bool
		says string
	}{
		{"below the ratio", ratio, cpuFigure(7, 5), true, "1.40 × (7.0 / 5.0 us)"},
		{"at the ratio", ratio, cpuFigure(8, 5), true, "1.60"},
		{"above the ratio", ratio, cpuFigure(8.1, 5), false, "1.62"},
		{"below the value", value, figure.Figure{Value: 999, Unit: "us"}, true, "999.0 us"},
		{"above the value", value, figure.Figure{Value: 1001, Unit: "us"}, false, "1001.0 us"},
		{"a little more", more, figure.Figure{Value: 2500, Unit: "us"}.Against("no-flood", 600), true, "+1900 (2500 - 600) us"},
		{"much more", more, figure.Figure{Value: 2700, Unit: "us"}.Against("no-flood", 600), false, "+2100"},
		{"at least as much", Goal{Least: 0.98, Peer: "no-rules"}, figure.Figure{Value: 98, Unit: "1/s"}.Against("no-rules", 100), true, "0.980 × (98.0 / 100.0 1/s)"},
		{"not as much", Goal{Least: 0.98, Peer: "no-rules"}, figure.Figure{Value: 97, Unit: "1/s"}.Against("no-rules", 100), false, "0.970"},
		{"even less", more, figure.Figure{Value: 500, Unit: "us"}.Against("no-flood", 600), true, "-100 (500 - 600) us"},
	} {
		measured, bound, met := c.g.judge(c.f)
		if met != c.met || !strings.Contains(measured, c.says) || bound == "" {
			t.Errorf("%s: %q, bound %q, met %t", c.name, measured, bound, met)
		}
	}
}

// Figures differ in peer, rate and state: a Goal is about one of them.
func TestFind(t *testing.T) {
	var all []reported
	for _, f := range []figure.Figure{
		{Name: "a", Value: 1, Rate: 30}, {Name: "a", Value: 2, Rate: 5000}, {Name: "a", Value: 3, State: "hour 8"},
		{Name: "a", Value: 4, Peer: "p"}, {Name: "b", Value: 5},
	} {
		all = append(all, reported{f, 0})
	}
	for want, g := range map[float64]Goal{
		1: {Figure: "a", Rate: 30}, 2: {Figure: "a", Rate: 5000}, 3: {Figure: "a", State: "hour 8"}, 4: {Figure: "a", Peer: "p"}, 5: {Figure: "b"},
	} {
		if f, ok := g.find(all); !ok || f.Value != want {
			t.Errorf("%+v found %+v, %t", g, f, ok)
		}
	}
	if f, ok := (Goal{Figure: "a"}).find(all); ok {
		t.Errorf("found %+v, which is another's", f)
	}
}

func TestVerdict(t *testing.T) {
	var notes bytes.Buffer
	goals := []Goal{{Figure: "dns.cached.cpu_us", Peer: "udp-echo", Ratio: 1.6}, {Figure: "dns.forwarded.cpu_us", Peer: "udp-echo", Ratio: 3}}
	b := &Ground{Notes: &notes, figures: []reported{{cpuFigure(4, 3), 0.1}}}
	b.Verdict(goals)
	text := notes.String()
	for _, want := range []string{"dns.cached.cpu_us", "≤ 1.60 × udp-echo", "1.33 × (4.0 / 3.0 us)", "met", "10 % of a core"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "NOT MET") || strings.Contains(text, "dns.forwarded") || strings.Contains(text, "too busy") {
		t.Errorf("it says too much:\n%s", text)
	}
	notes.Reset()
	b.figures = []reported{{cpuFigure(40, 3), 0.9}}
	b.Verdict(goals)
	if text := notes.String(); !strings.Contains(text, "NOT MET") || !strings.Contains(text, "too busy") {
		t.Errorf("neither the miss nor the noise is said:\n%s", text)
	}
}
