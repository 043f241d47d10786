package corefile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// writer writes a random block of the root zone and, beside it, the expected result of
// the parser.
type writer struct {
	*rand.Rand
	want Config
}

func (w *writer) one(of ...string) string { return of[w.IntN(len(of))] }

// seconds is a random number of them, in one of the ways to write it.
func (w *writer) seconds(least, most int) (string, time.Duration) {
	n := least + w.IntN(most-least+1)
	d := time.Duration(n) * time.Second
	return w.one(fmt.Sprint(n), fmt.Sprint(n, "s"), d.String(), fmt.Sprint(n*1000, "ms")), d
}

func (w *writer) shuffled(lines []string) string {
	w.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return strings.Join(lines, "\n")
}

// some drops lines; the remaining ones have been applied to the expected result.
func (w *writer) some(all map[string]func() string) (lines []string) {
	for _, write := range all {
		if w.IntN(2) == 0 {
			lines = append(lines, write())
		}
	}
	return lines
}

func (w *writer) cache() (string, *Cache) {
	c := &Cache{MaxTTL: time.Hour, NegativeTTL: 30 * time.Second}
	head := "cache"
	if w.IntN(3) > 0 {
		text, d := w.seconds(1, 7*24*3600)
		head, c.MaxTTL = head+" "+text, d
		c.NegativeTTL = min(c.NegativeTTL, d)
	}
	lines := w.some(map[string]func() string{
		"min_ttl": func() (text string) {
			text, c.MinTTL = w.seconds(0, min(3600, int(c.MaxTTL/time.Second)))
			return "min_ttl " + text
		},
		"negative_ttl": func() string {
			n := w.IntN(3*3600 + 1)
			c.NegativeTTL = time.Duration(n) * time.Second
			return fmt.Sprint("negative_ttl ", n, "s")
		},
		"prefetch": func() string {
			c.Prefetch = Prefetch{1 + w.IntN(1000), time.Minute, 10}
			text := fmt.Sprint("prefetch ", c.Prefetch.Amount)
			if w.IntN(2) == 0 {
				c.Prefetch.Within = time.Duration(1000+w.IntN(100_000)) * time.Millisecond
				text += " " + c.Prefetch.Within.String()
				if w.IntN(2) == 0 {
					c.Prefetch.Percent = 1 + w.IntN(90)
					text += fmt.Sprint(" ", c.Prefetch.Percent, "%")
				}
			}
			return text
		},
		"serve_stale": func() string {
			c.ServeStale = time.Hour
			if w.IntN(2) == 0 {
				return "serve_stale"
			}
			c.ServeStale = time.Duration(1000+w.IntN(86_399_000)) * time.Millisecond
			return "serve_stale " + c.ServeStale.String()
		},
		"entries": func() string {
			w.want.CacheEntries = 16 + w.IntN(999_985)
			return fmt.Sprint("entries ", w.want.CacheEntries)
		},
		"size": func() string {
			n := 1 + w.IntN(1024)
			w.want.CacheBytes = int64(n) << 20
			return fmt.Sprint("size ", n, w.one("M", "Mi", "MiB"))
		},
	})
	if len(lines) > 0 {
		head += " {\n" + w.shuffled(lines) + "\n}"
	}
	return head, c
}

func (w *writer) forward() (string, Zone) {
	z := Zone{To: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}, Timeout: time.Second, Deadline: 4 * time.Second, MaxFails: 2, Probe: 250 * time.Millisecond}
	lines := w.some(map[string]func() string{
		"health_check": func() string {
			z.Probe = time.Duration(50+w.IntN(9951)) * time.Millisecond
			return "health_check " + z.Probe.String()
		},
		"max_concurrent": func() string {
			z.MaxConcurrent = w.IntN(1<<20 + 1)
			return fmt.Sprint("max_concurrent ", z.MaxConcurrent)
		},
		"force_tcp": func() string { z.ForceTCP = true; return "force_tcp" },
		"policy":    func() string { z.Policy = RoundRobin; return "policy round_robin" },
	})
	head := "forward . 192.0.2.1"
	if len(lines) > 0 {
		head += " {\n" + w.shuffled(lines) + "\n}"
	}
	return head, z
}

func (w *writer) serverNames() []string {
	n := &w.want.ServerNames
	number := func(name string, to *int, least, most int) func() string {
		return func() string {
			*to = least + w.IntN(most-least+1)
			return fmt.Sprint(name, " ", *to)
		}
	}
	return w.some(map[string]func() string{
		"grace": func() string {
			n.Grace = time.Duration(w.IntN(3_600_001)) * time.Millisecond
			return "grace " + n.Grace.String()
		},
		"port":                number("port", &n.Port, 1, 65535),
		"connections":         number("connections", &n.Connections, 1024, 65536),
		"connections_per_pod": number("connections_per_pod", &n.ConnectionsPerPod, 1, 1024),
		"hellos":              number("hellos", &n.Hellos, 64, 65536),
		"hellos_per_pod":      number("hellos_per_pod", &n.HellosPerPod, 1, 64),
	})
}

// TestParseTwin: random good files, in any order and spelling, become what their
// writer meant.
func TestParseTwin(t *testing.T) {
	for seed := range uint64(3000) {
		w := &writer{Rand: rand.New(rand.NewPCG(seed, 4)), want: *Default()}
		w.want.File = "Corefile"
		text, zone := w.forward()
		lines := []string{text}
		if w.IntN(4) > 0 {
			text, zone.Cache = w.cache()
			lines = append(lines, text)
		}
		if w.IntN(2) == 0 {
			least, l := w.seconds(0, 3600)
			greatest, g := w.seconds(int(l/time.Second), 1<<31-1)
			w.want.TTL = TTL{uint32(l / time.Second), uint32(g / time.Second)}
			lines = append(lines, "ttl "+least+" "+greatest)
		}
		if w.IntN(2) == 0 {
			w.want.Follow = w.IntN(2) == 0
			lines = append(lines, "follow "+map[bool]string{true: "on", false: "off"}[w.want.Follow])
		}
		if names := w.serverNames(); len(names) > 0 {
			lines = append(lines, "servernames {\n"+w.shuffled(names)+"\n}")
		}
		w.want.Zones = []Zone{zone}
		file := ". {\n" + w.shuffled(lines) + "\n}\n"
		got, err := Parse("Corefile", file)
		fatal.If(t, err, "seed", seed, "in", file)
		diff.Fatal(t, &w.want, got, "seed", seed, "in", file)
	}
}
