package dnsperf

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// output is what dnsperf 2.10 prints.
const output = `DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -s 192.0.2.53 -d new.txt
[Status] Sending queries (to 192.0.2.53:53)
[Status] Started at: Mon Jan  5 10:00:00 2026
[Status] Stopping after 2.000000 seconds
[Timeout] Query timed out: msg id 17
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         41500
  Queries completed:    41450 (99.88%)
  Queries lost:         50 (0.12%)

  Response codes:       NOERROR 41000 (98.91%), SERVFAIL 400 (0.97%), NXDOMAIN 50 (0.12%)
  Average packet size:  request 41, response 57
  Run time (s):         2.000321
  Queries per second:   20721.674131

  Average Latency (s):  0.004771 (min 0.000233, max 0.041251)
  Latency StdDev (s):   0.001342

`

func TestParse(t *testing.T) {
	got, err := Parse(output)
	want := Result{Sent: 41500, Completed: 41450, Lost: 50, Good: 41000, Took: 2000321 * time.Microsecond}
	if err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	if q := got.QPS(); q < 20496 || q > 20497 {
		t.Errorf("%v good answers a second", q)
	}
}

func TestParseCodes(t *testing.T) {
	for codes, want := range map[string]int{
		"NOERROR 7 (100.00%)":                    7,
		"SERVFAIL 5 (50.00%), NOERROR 5 (50.0%)": 5,
		"SERVFAIL 5 (100.00%)":                   0,
		"":                                       0,
	} {
		text := strings.Replace(output, "NOERROR 41000 (98.91%), SERVFAIL 400 (0.97%), NXDOMAIN 50 (0.12%)", codes, 1)
		if got, err := Parse(text); err != nil || got.Good != want {
			t.Errorf("%q: %d, %v, want %d", codes, got.Good, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":          "",
		"an error alone":   "Error: sockaddr_info: 192.0.2.53: Name or service not known\n",
		"cut off":          output[:strings.Index(output, "Response codes")],
		"no time":          strings.Replace(output, "2.000321", "0.000000", 1),
		"no number":        strings.Replace(output, "41500", "many", 1),
		"a count cut off":  strings.Replace(output, "41450 (99.88%)", "", 1),
		"codes cut off":    strings.Replace(output, "NOERROR 41000", "NOERROR ", 1),
		"a strange moment": strings.Replace(output, "2.000321", "soon", 1),
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%s was read as %+v", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(output)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := Parse(text); err == nil && r.Took <= 0 {
			t.Errorf("%+v took no time", r)
		}
	})
}

func TestCommand(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.53:5301")
	for name, c := range map[string]struct {
		run           Run
		with, without []string
	}{
		"as fast as it can": {Run{Server: at, File: "q", For: 1500 * time.Millisecond, Clients: 10, Outstanding: 100},
			[]string{"-s 192.0.2.53", "-p 5301", "-d q", "-l 1.5", "-c 10", "-q 100"}, []string{"-Q", "-n"}},
		"once, slowly": {Run{Server: at, File: "q", Once: true, Rate: 5000, Clients: 1, Outstanding: 20},
			[]string{"-n 1", "-Q 5000", "-q 20"}, []string{"-l"}},
	} {
		cmd := c.run.Command(context.Background())
		line := strings.Join(cmd.Args, " ") + " "
		for _, w := range c.with {
			if !strings.Contains(line, " "+w+" ") {
				t.Errorf("%s: no %q in %s", name, w, line)
			}
		}
		for _, w := range c.without {
			if slices.Contains(cmd.Args, w) {
				t.Errorf("%s: %q in %s", name, w, line)
			}
		}
	}
}
