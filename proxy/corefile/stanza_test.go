package corefile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"

	"github.com/namegate/namegate/testkit/diff"
)

// stanzasOf lexes text as the tokens of one directive.
func stanzasOf(t *testing.T, text string) ([]stanza, error) {
	t.Helper()
	var tokens []caddyfile.Token
	for i, row := range strings.Split(text, "\n") {
		for _, word := range strings.Fields(row) {
			tokens = append(tokens, caddyfile.Token{File: "f", Line: i + 1, Text: word})
		}
	}
	return stanzas("f", tokens)
}

func TestStanzas(t *testing.T) {
	for text, want := range map[string]string{
		"hold 10m":                            "1 hold [10m]",
		"failclosed":                          "1 failclosed []",
		"bind a b\nbind c":                    "1 bind [a b]; 2 bind [c]",
		"limits {\nqueries 5\naddresses 6\n}": "1 limits [] (2 queries [5]) (3 addresses [6])",
		"forward . x {\npolicy random\n}\nforward y z": "1 forward [. x] (2 policy [random]); 4 forward [y z]",
		"limits {\n}": "1 limits []",
	} {
		ss, err := stanzasOf(t, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, s := range ss {
			row := fmt.Sprint(s.line, " ", s.name, " ", s.args)
			for _, in := range s.block {
				row += fmt.Sprint(" (", in.line, " ", in.option(), " ", in.args, ")")
			}
			got = append(got, row)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if _, err := stanzasOf(t, "limits {\nqueries 5 {\nx\n}\n}"); err == nil || !strings.HasPrefix(err.Error(), "f:2: limits: queries: ") {
		t.Errorf("a block in a block: %v", err)
	}
}

func TestKeyless(t *testing.T) {
	for text, line := range map[string]int{
		"":                                 0,
		". {\n}\n":                         0,
		". {\nlimits {\n}\n}\na.test {\n}": 0,
		"a.test\nforward . x":              0, // one zone without braces
		"{\n}":                             1,
		"# text\n\n{\n}":                   3,
		". {\n}\n{\n}":                     3,
		". {\nlimits {\n}\n}\n{\n}":        5,
	} {
		err := keyless("f", text)
		if line == 0 && err != nil || line != 0 && (err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("f:%d: {: ", line))) {
			t.Errorf("%q: %v, want line %d", text, err, line)
		}
	}
}

func TestZoneKeys(t *testing.T) {
	for key, want := range map[string]string{".": ".", ".:53": ".", "Example.ORG": "example.org", "example.org.:53": "example.org", "a_b.test": "a_b.test"} {
		if n, err := zoneKey(key); err != nil || n.String() != want {
			t.Errorf("%s: %v, %v", key, n, err)
		}
	}
	for _, key := range []string{"", ":53", ".:54", "example.org:", "dns://.", "tls://example.org", "a..b"} {
		if n, err := zoneKey(key); err == nil {
			t.Errorf("%q is %v", key, n)
		}
	}
}

// TestDefaultIsFresh: changing one default does not change the next.
func TestDefaultIsFresh(t *testing.T) {
	a := Default()
	a.Bind[0], a.Limits.Queries = a.Bind[1], 1
	if b := Default(); b.Bind[0] == b.Bind[1] || b.Limits.Queries == 1 {
		t.Error("the defaults are shared")
	}
	if zones := Default().Zones; len(zones) != 0 {
		t.Errorf("the default has the zones %v", zones)
	}
}

// TestCoreDNSOptionsAreAnswered: every option of CoreDNS's that is none here says
// what to do instead, with its place.
func TestCoreDNSOptionsAreAnswered(t *testing.T) {
	for _, tt := range []struct {
		in      func(line string) string
		options string
		hints   map[string]string
	}{
		{func(line string) string { return ". {\nforward . 192.0.2.1 {\n" + line + "\n}\n}" },
			"doh_method except expire failfast_all_unhealthy_upstreams failover max_connect_attempts max_idle_conns next next_on_nodata prefer_udp resolver tls tls_servername", forwardElsewhere},
		{func(line string) string { return ". {\ncache {\n" + line + "\n}\nforward . 192.0.2.1\n}" },
			"denial disable keepttl refresh servfail success", cacheElsewhere},
		{func(line string) string { return ". {\nforward . 192.0.2.1\n" + line + "\n}" },
			"errors health hosts kubernetes log loop prometheus ready reload", elsewhere},
	} {
		diff.Equal(t, tt.options, strings.Join(slices.Sorted(maps.Keys(tt.hints)), " "), "options with words")
		for option, hint := range tt.hints {
			for _, values := range []string{"", " 10", " NXDOMAIN example.org"} {
				_, err := Parse("Corefile", tt.in(option+values))
				if err == nil || !strings.HasPrefix(err.Error(), "Corefile:3: ") || !strings.HasSuffix(err.Error(), hint) || !strings.Contains(err.Error(), option+": ") {
					t.Errorf("%s%s: error %v, want %q", option, values, err, hint)
				}
			}
			if !strings.Contains(hint, "write ") && !strings.Contains(hint, "remove ") {
				t.Errorf("%s: nothing says what to do: %s", option, hint)
			}
		}
	}
}

// TestNewDirectivesNeedNoRestart: a running agent takes them over.
func TestNewDirectivesNeedNoRestart(t *testing.T) {
	start := parseForward(t, rootBlock(""))
	for _, lines := range []string{
		"cache", "cache 10s {\nmin_ttl 1s\nnegative_ttl 0s\nprefetch 10\nserve_stale\nentries 100\nsize 1MiB\n}", "ttl 5s 1h", "follow off",
	} {
		c := parseForward(t, rootBlock(lines))
		if d := diff.Text(start, c); d == "" {
			t.Errorf("%s changed nothing", lines)
		}
		if got := c.NeedsRestart(start); got != nil {
			t.Errorf("%s: %v needs a restart", lines, got)
		}
	}
	c := parseForward(t, ". {\nforward . 192.0.2.1 {\nhealth_check 1s\nmax_concurrent 10\nforce_tcp\n}\n}")
	if got := c.NeedsRestart(start); got != nil {
		t.Errorf("the options of forward: %v needs a restart", got)
	}
}
