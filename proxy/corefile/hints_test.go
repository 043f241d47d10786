package corefile

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

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
		if got := strings.Join(slices.Sorted(maps.Keys(tt.hints)), " "); got != tt.options {
			t.Errorf("there are words for %s, want them for %s", got, tt.options)
		}
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
		if d := diff(start, c); d == "" {
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
