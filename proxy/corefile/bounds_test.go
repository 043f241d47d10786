package corefile

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// bound is a range in docs/corefile.md, and the position of its value.
type bound struct {
	section, row string // row is how the line with the range begins
	ends         string // "LEAST to MOST"
	lines        string // of the root zone's block, with %s for the value
	step         string // to just outside
}

var bounds = []bound{
	{"audit", "| `size SIZE` | `100MiB` | ", "64KiB to 1024GiB", "audit /a {\nsize %s\n}", "1"},
	{"audit", "| `keep N` | `5` | ", "0 to 1000", "audit /a {\nkeep %s\n}", "1"},
	{"audit", "| `sample N` | `1` | ", "1 to 1000000", "audit stdout {\nsample %s\n}", "1"},
	{"cache", "| MAX_TTL | `1h` | ", "1s to 168h", "cache %s", "1s"},
	{"cache", "| `min_ttl DURATION` | `0s` | ", "0s to 1h", "cache {\nmin_ttl %s\n}", "1s"},
	{"cache", "| `negative_ttl DURATION` | `30s`, or MAX_TTL if that is less | ", "0s to 3h", "cache {\nnegative_ttl %s\n}", "1s"},
	{"cache", "| `prefetch AMOUNT [DURATION [PERCENT%]]` | none; `1m`, `10%` | ", "0 to 1000000", "cache {\nprefetch %s\n}", "1"},
	{"cache", "| `prefetch AMOUNT [DURATION [PERCENT%]]` | none; `1m`, `10%` | 0 to 1000000; ", "1s to 24h", "cache {\nprefetch 1 %s\n}", "1ms"},
	{"cache", "| `prefetch AMOUNT [DURATION [PERCENT%]]` | none; `1m`, `10%` | 0 to 1000000; 1s to 24h; ", "1% to 90%", "cache {\nprefetch 1 1m %s\n}", "1"},
	{"cache", "| `serve_stale [DURATION]` | none; `1h` | ", "1s to 24h", "cache {\nserve_stale %s\n}", "1ms"},
	{"cache", "| `entries N` | `10000` | ", "16 to 1000000", "cache {\nentries %s\n}", "1"},
	{"cache", "| `size SIZE` | `32MiB` | ", "1MiB to 1GiB", "cache {\nsize %s\n}", "1"},
	{"forward", "| `timeout DURATION` | `1s` | ", "50ms to 4s", "forward a.test 192.0.2.2 {\ntimeout %s\n}", "1ms"},
	{"forward", "| `deadline DURATION` | `4s` | ", "100ms to 10s", "forward a.test 192.0.2.2 {\ntimeout 50ms\ndeadline %s\n}", "1ms"},
	{"forward", "| `max_fails N` | `2` | ", "0 to 1000", "forward a.test 192.0.2.2 {\nmax_fails %s\n}", "1"},
	{"forward", "| `health_check DURATION` | `250ms` | ", "50ms to 10s", "forward a.test 192.0.2.2 {\nhealth_check %s\n}", "1ms"},
	{"forward", "| `max_concurrent N` | `0` | ", "0 to 1048576", "forward a.test 192.0.2.2 {\nmax_concurrent %s\n}", "1"},
	{"All directives", "| [`grant`](#grant) `timeout DURATION` | `500ms` | ", "10ms to 4s", "grant timeout %s", "1ms"},
	{"All directives", "| [`hold`](#hold) `DURATION` | `10m` | ", "0s to 24h", "hold %s", "1ms"},
	{"limits", "| `queries_per_pod N` | `512` | ", "1 to 1048576", "limits {\nqueries 1048576\nqueries_per_pod %s\n}", "1"},
	{"limits", "| `rate_per_pod N` | `1000` | ", "1 to 1048576", "limits {\nrate_per_pod %s\n}", "1"},
	{"limits", "| `burst_per_pod N` | `256` | ", "1 to 1048576", "limits {\nburst_per_pod %s\n}", "1"},
	{"limits", "| `connections_per_pod N` | `64` | ", "1 to 1048576", "limits {\nconnections 1048576\nconnections_per_pod %s\n}", "1"},
	{"limits", "| `addresses N` | `128` | ", "1 to 4096", "limits {\naddresses %s\n}", "1"},
	{"limits", "| `grants_per_pod N` | `8192` | ", "1 to 32768", "limits {\ngrants_per_pod %s\n}", "1"},
	{"servernames", "| `port N` | `9955` | ", "1 to 65535", "servernames {\nport %s\n}", "1"},
	{"servernames", "| `connections_per_pod N` | `1024` | ", "1 to 65536", "servernames {\nconnections 65536\nconnections_per_pod %s\n}", "1"},
	{"servernames", "| `hellos_per_pod N` | `64` | ", "1 to 65536", "servernames {\nhellos 65536\nhellos_per_pod %s\n}", "1"},
	{"servernames", "| `grace DURATION` | `30s` | ", "0s to 1h", "servernames {\ngrace %s\n}", "1ms"},
	{"All directives", "| [`ttl`](#ttl) `MIN_TTL MAX_TTL` | TTLs are unchanged | MIN_TTL ", "0s to 1h", "ttl %s 2h", "1s"},
}

// TestDocumentedBounds: the bounds in docs/corefile.md are valid values, values just
// outside are refused, and the message has the same bounds.
func TestDocumentedBounds(t *testing.T) {
	text := documentation(t)
	for _, b := range bounds {
		diff.Has(t, "\n"+b.row+b.ends, section(text, b.section), "docs/corefile.md does not say", b.row, b.ends, "of", b.section)
		least, most, _ := strings.Cut(b.ends, " to ")
		for _, end := range []string{least, most} {
			if _, err := Parse("Corefile", rootBlock(fmt.Sprintf(b.lines, end))); err != nil {
				t.Errorf("%s: %v", b.lines, err)
			}
		}
		said := "is out of bounds, write " + strings.ReplaceAll(b.ends, "%", "")
		for _, outside := range []string{moved(t, least, b.step, -1), moved(t, most, b.step, 1)} {
			_, err := Parse("Corefile", rootBlock(fmt.Sprintf(b.lines, outside)))
			if err == nil || !strings.HasSuffix(err.Error(), said) && !strings.Contains(err.Error(), "is not a size") {
				t.Errorf("%s with %s: error %v, want %q", b.lines, outside, err, said)
			}
		}
	}
}

// moved is the value one step further in the direction.
func moved(t *testing.T, value, step string, direction int) string {
	t.Helper()
	if plain, percent := strings.CutSuffix(value, "%"); percent {
		return moved(t, plain, step, direction) + "%"
	}
	if d, err := time.ParseDuration(step); err == nil && d > 0 {
		v, err := time.ParseDuration(value)
		fatal.If(t, err)
		return (v + time.Duration(direction)*d).String()
	}
	shift := 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if plain, ok := strings.CutSuffix(value, unit); ok {
			value, shift = plain, bits
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	fatal.If(t, err)
	return fmt.Sprint(n<<shift + int64(direction))
}
