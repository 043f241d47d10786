package corefile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
)

// rootBlock is a Corefile of one block with these lines beside the forward.
func rootBlock(lines string) string { return ". {\nforward . 192.0.2.1\n" + lines + "\n}\n" }

func TestCache(t *testing.T) {
	plain := Cache{MaxTTL: time.Hour, NegativeTTL: 30 * time.Second}
	with := func(change func(*Cache)) Cache {
		c := plain
		change(&c)
		return c
	}
	for text, want := range map[string]Cache{
		"cache":                                 plain,
		"cache 1h":                              plain,
		"cache 3600":                            plain,
		"cache {\n}":                            plain,
		"cache 168h":                            with(func(c *Cache) { c.MaxTTL = 168 * time.Hour }),
		"cache 1":                               {MaxTTL: time.Second, NegativeTTL: time.Second},
		"cache 10s":                             {MaxTTL: 10 * time.Second, NegativeTTL: 10 * time.Second},
		"cache 10s {\n negative_ttl 30s\n}":     {MaxTTL: 10 * time.Second, NegativeTTL: 30 * time.Second},
		"cache 30s":                             {MaxTTL: 30 * time.Second, NegativeTTL: 30 * time.Second},
		"cache {\n min_ttl 5s\n}":               with(func(c *Cache) { c.MinTTL = 5 * time.Second }),
		"cache {\n min_ttl 5\n}":                with(func(c *Cache) { c.MinTTL = 5 * time.Second }),
		"cache {\n min_ttl 1h\n}":               with(func(c *Cache) { c.MinTTL = time.Hour }),
		"cache {\n negative_ttl 0s\n}":          with(func(c *Cache) { c.NegativeTTL = 0 }),
		"cache {\n negative_ttl 0\n}":           with(func(c *Cache) { c.NegativeTTL = 0 }),
		"cache {\n negative_ttl 3h\n}":          with(func(c *Cache) { c.NegativeTTL = 3 * time.Hour }),
		"cache {\n prefetch 1\n}":               with(func(c *Cache) { c.Prefetch = Prefetch{1, time.Minute, 10} }),
		"cache {\n prefetch 2 5m\n}":            with(func(c *Cache) { c.Prefetch = Prefetch{2, 5 * time.Minute, 10} }),
		"cache {\n prefetch 3 1s 1%\n}":         with(func(c *Cache) { c.Prefetch = Prefetch{3, time.Second, 1} }),
		"cache {\n prefetch 1000000 24h 90%\n}": with(func(c *Cache) { c.Prefetch = Prefetch{1_000_000, 24 * time.Hour, 90} }),
		"cache {\n prefetch 0\n}":               plain,
		"cache {\n prefetch 0 5m 20%\n}":        plain,
		"cache {\n serve_stale\n}":              with(func(c *Cache) { c.ServeStale = time.Hour }),
		"cache {\n serve_stale 1s\n}":           with(func(c *Cache) { c.ServeStale = time.Second }),
		"cache {\n serve_stale 24h\n}":          with(func(c *Cache) { c.ServeStale = 24 * time.Hour }),
	} {
		c, err := Parse("Corefile", rootBlock(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := c.Zones[0].Cache; got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if c.CacheEntries != 10_000 || c.CacheBytes != 32<<20 {
			t.Errorf("%s: %d entries, %d bytes", text, c.CacheEntries, c.CacheBytes)
		}
	}
}

// TestCacheIsOfItsBlock: of all forwards of the block, before or after the line,
// and of no other's.
func TestCacheIsOfItsBlock(t *testing.T) {
	for text, want := range map[string]string{
		rootBlock(""): ".=0s",
		rootBlock("cache 1m\nforward a.test 192.0.2.2"):                                                 "a.test=1m0s .=1m0s",
		rootBlock("forward a.test 192.0.2.2\ncache 1m"):                                                 "a.test=1m0s .=1m0s",
		". {\ncache 2m\nforward . 192.0.2.1\n}":                                                         ".=2m0s",
		rootBlock("") + "a.test b.test {\nforward . 192.0.2.2\ncache 1m\n}":                             "a.test=1m0s b.test=1m0s .=0s",
		rootBlock("cache 1m") + "a.test {\nforward . 192.0.2.2\n}":                                      "a.test=0s .=1m0s",
		"a.test {\nforward . 192.0.2.2\ncache 3m\n}\n" + rootBlock("cache 1m"):                          "a.test=3m0s .=1m0s",
		". b.test {\nforward . 192.0.2.1\ncache 1m {\nentries 16\n}\n}":                                 "b.test=1m0s .=1m0s",
		rootBlock("cache 1m") + ". {\nforward a.test 192.0.2.2\n}":                                      "a.test=0s .=1m0s",
		"(c) {\ncache 4m\n}\n" + rootBlock("import c") + "a.test {\nimport c\nforward . 192.0.2.2\n}\n": "a.test=4m0s .=4m0s",
	} {
		c, err := Parse("Corefile", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, z := range c.Zones {
			kept := time.Duration(0)
			if z.Cache != nil {
				kept = z.Cache.MaxTTL
			}
			got = append(got, fmt.Sprintf("%s=%v", z.Name, kept))
		}
		diff.Error(t, want, strings.Join(got, " "), text)
	}
}

func TestBadCaches(t *testing.T) {
	for text, want := range map[string]string{
		rootBlock("cache 0"):                                                         `Corefile:3: cache: 0 is out of bounds, write 1s to 168h`,
		rootBlock("cache 169h"):                                                      `cache: 169h is out of bounds, write 1s to 168h`,
		rootBlock("cache -1s"):                                                       `cache: -1s is out of bounds`,
		rootBlock("cache 1500ms"):                                                    `cache: 1.5s is not a number of whole seconds`,
		rootBlock("cache 1d"):                                                        `cache: "1d" is not a duration, write for example "cache 1h"`,
		rootBlock("cache \"\""):                                                      `Corefile:3: cache: is of its block's zones and takes one time alone`,
		rootBlock("cache example.org"):                                               `write "cache 1h", and another block for other zones`,
		rootBlock("cache 30 example.org"):                                            `write "cache 1h", and another block for other zones`,
		rootBlock("cache\nhold 5m\ncache 1h"):                                        `Corefile:5: cache: stands in line 3 already, write it once in a block`,
		rootBlock("") + "a.test {\ncache\n}":                                         `Corefile:6: cache: is of the forwards of its block, which has none, write "forward . ADDRESS" beside it`,
		rootBlock("") + ". {\ncache\nhold 5m\n}":                                     `Corefile:6: cache: is of the forwards of its block, which has none`,
		rootBlock("cache {\n min_ttl 1s {\n}\n}"):                                    `min_ttl: has no block of its own`,
		rootBlock("cache {\n colour red\n}"):                                         `Corefile:4: cache: colour: is not an option of cache, write min_ttl, negative_ttl, prefetch, serve_stale, entries or size`,
		rootBlock("cache {\n min_ttl 5s\n min_ttl 5s\n}"):                            `Corefile:5: cache: min_ttl: stands in line 4 already, write it once`,
		rootBlock("cache {\n min_ttl 61m\n}"):                                        `cache: min_ttl: 1h1m is out of bounds, write 0s to 1h`,
		rootBlock("cache {\n min_ttl\n}"):                                            `has 0 values instead of one, write "min_ttl 5s"`,
		rootBlock("cache {\n min_ttl 1ms\n}"):                                        `min_ttl: 1ms is not a number of whole seconds`,
		rootBlock("cache 10s {\n min_ttl 11s\n}"):                                    `Corefile:3: cache: min_ttl 11s is above the maximum TTL, 10s, write a lower one`,
		rootBlock("cache {\n negative_ttl 181m\n}"):                                  `cache: negative_ttl: 3h1m is out of bounds, write 0s to 3h`,
		rootBlock("cache {\n negative_ttl -1s\n}"):                                   `negative_ttl: -1s is out of bounds`,
		rootBlock("cache {\n negative_ttl\n}"):                                       `negative_ttl: has 0 values instead of one, write "negative_ttl 30s"`,
		rootBlock("cache {\n negative_ttl soon\n}"):                                  `negative_ttl: "soon" is not a duration, write for example "negative_ttl 30s"`,
		rootBlock("cache {\n negative_ttl 30s 5s\n}"):                                `negative_ttl: has 2 values instead of one`,
		rootBlock("cache {\n negative_ttl 2500\n}"):                                  `negative_ttl: takes how long, and 2500 is CoreDNS's number of answers, write "negative_ttl 30s" here and "entries 10000" in the cache of zone "."`,
		rootBlock("cache {\n denial 9984 30 5\n}"):                                   `denial: is CoreDNS's, write the time as "negative_ttl 30s"`,
		rootBlock("cache {\n success 9984 30\n}"):                                    `success: is CoreDNS's, write the times as "cache 1h" and "min_ttl 5s"`,
		rootBlock("cache {\n prefetch\n}"):                                           `prefetch: has 0 values instead of one to three, write for example "prefetch 10 1m 10%"`,
		rootBlock("cache {\n prefetch 1 1m 10% 4\n}"):                                `prefetch: has 4 values`,
		rootBlock("cache {\n prefetch -1\n}"):                                        `prefetch: -1 is out of bounds, write 0 to 1000000`,
		rootBlock("cache {\n prefetch many\n}"):                                      `prefetch: "many" is not a whole number`,
		rootBlock("cache {\n prefetch 1000001\n}"):                                   `prefetch: 1000001 is out of bounds`,
		rootBlock("cache {\n prefetch 10 10%\n}"):                                    `prefetch: "10%" is not a duration, write for example "prefetch 10 1m 10%"`,
		rootBlock("cache {\n prefetch 10 60\n}"):                                     `prefetch: "60" is not a duration`,
		rootBlock("cache {\n prefetch 10 999ms\n}"):                                  `prefetch: 999ms is out of bounds, write 1s to 24h`,
		rootBlock("cache {\n prefetch 10 25h\n}"):                                    `prefetch: 25h is out of bounds`,
		rootBlock("cache {\n prefetch 10 1m 10\n}"):                                  `prefetch: "10" is not a percentage`,
		rootBlock("cache {\n prefetch 10 1m ten%\n}"):                                `prefetch: "ten" is not a whole number`,
		rootBlock("cache {\n prefetch 10 1m 0%\n}"):                                  `prefetch: 0 is out of bounds, write 1 to 90`,
		rootBlock("cache {\n prefetch 10 1m 91%\n}"):                                 `prefetch: 91 is out of bounds, write 1 to 90`,
		rootBlock("cache {\n prefetch 0 1m 91%\n}"):                                  `prefetch: 91 is out of bounds`,
		rootBlock("cache {\n serve_stale 999ms\n}"):                                  `serve_stale: 999ms is out of bounds, write 1s to 24h`,
		rootBlock("cache {\n serve_stale 25h\n}"):                                    `serve_stale: 25h is out of bounds`,
		rootBlock("cache {\n serve_stale on\n}"):                                     `serve_stale: "on" is not a duration, write for example "serve_stale 1h"`,
		rootBlock("cache {\n serve_stale 2h immediate\n}"):                           `serve_stale: has no mode, since an upstream is asked first, write "serve_stale 2h"`,
		rootBlock("cache {\n entries 15\n}"):                                         `entries: 15 is out of bounds, write 16 to 1000000`,
		rootBlock("cache {\n entries 1000001\n}"):                                    `entries: 1000001 is out of bounds`,
		rootBlock("cache {\n entries 1k\n}"):                                         `entries: "1k" is not a whole number, write for example "entries 10000"`,
		rootBlock("cache {\n size 1023KiB\n}"):                                       `size: "1023KiB" is out of bounds, write 1MiB to 1GiB`,
		rootBlock("cache {\n size 1025M\n}"):                                         `size: "1025M" is out of bounds`,
		rootBlock("cache {\n size 32MB\n}"):                                          `size: "32MB" is not a size, write for example "size 32MiB"`,
		rootBlock("") + "a.test {\nforward . 192.0.2.2\ncache {\n entries 100\n}\n}": `Corefile:8: cache: entries: bounds what is kept of all zones, write it in the cache of zone "." instead`,
		rootBlock("") + "a.test {\nforward . 192.0.2.2\ncache {\n size 1MiB\n}\n}":   `Corefile:8: cache: size: bounds what is kept of all zones`,
		rootBlock("cache {\nentries 100\n}") + ". {\nforward a.test 192.0.2.2\ncache {\nentries 100\n}\n}": `Corefile:10: cache: entries: stands in line 4 already, write it once`,
	} {
		_, err := Parse("Corefile", text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q alone", text, err, want)
		}
	}
}

// TestInvalidForwardIsTheOnlyError: the cache beside it is none without a forward.
func TestInvalidForwardIsTheOnlyError(t *testing.T) {
	_, err := Parse("Corefile", ". {\ncache\nforward . nowhere\n}")
	if err == nil || strings.Count(err.Error(), "Corefile:") != 1 || !strings.Contains(err.Error(), "Corefile:3: forward") {
		t.Errorf("error %v", err)
	}
}
