package corefile

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{
		"65536": 65536, "64k": 65536, "64K": 65536, "64Ki": 65536, "64KiB": 65536,
		"1M": 1 << 20, "1m": 0, "100MiB": 100 << 20, "1G": 1 << 30, "1024GiB": 1 << 40,
		"": 0, "M": 0, "1T": 0, "1B": 0, "-1M": 0, "1.5M": 0, "65535": 0, "1025G": 0, "1MM": 0, "1GiBi": 0, "99999999999999999999": 0,
	} {
		got, err := stanza{file: "f", line: 1, name: "size"}.size(text, "size 1MiB", 64<<10, 1<<40)
		if (err == nil) != (want != 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

// TestSecondsAreWhole: with or without a unit, never a part of one.
func TestSecondsAreWhole(t *testing.T) {
	s := stanza{file: "f", line: 1, name: "x"}
	for arg, want := range map[string]time.Duration{
		"1": time.Second, "1s": time.Second, "1000ms": time.Second, "3600": time.Hour, "1h": time.Hour, "007": 7 * time.Second,
		"1m30s": 90 * time.Second, "1.5m": 90 * time.Second,
	} {
		if got, err := s.seconds(arg, "x 5s", time.Second, time.Hour); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", arg, got, err, want)
		}
	}
	for arg, want := range map[string]string{
		"0": `0 is out of bounds, write 1s to 1h`, "0s": "0s is out of bounds", "3601": "3601 is out of bounds", "1h1s": "1h0m1s is out of bounds",
		"1500ms":        `1.5s is not a number of whole seconds, as TTLs are, write for example "x 5s"`,
		"9999999999999": "out of bounds", "2305843009213696": "out of bounds", // 2.048 s where 64 bits of nanoseconds overflow
		"99999999999999999999999": "out of bounds", "-5": "is not a duration", "+5": "is not a duration",
		"5_0": "is not a duration", "1d": "is not a duration", "": "is not a duration", "-5s": "out of bounds", "2562047h": "2562047h is out of bounds", "9999999h": "is not a duration",
	} {
		if got, err := s.seconds(arg, "x 5s", time.Second, time.Hour); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", arg, got, err, want)
		}
	}
}

// TestShortIsTheSameDuration: what texts say can be written back.
func TestShortIsTheSameDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 50 * time.Millisecond: "50ms", 10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h",
		time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m", 20 * time.Hour: "20h", maxMaxTTL: "168h", -time.Hour: "-1h",
	} {
		got := short(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v: %q, which is %v, %v; want %q", d, got, back, err, want)
		}
	}
}

func TestInBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 1023: "1023", 1025: "1025", 64 << 10: "64KiB", 1 << 20: "1MiB", 3 << 29: "1536MiB", 1 << 30: "1GiB", 1 << 40: "1024GiB"} {
		if got := inBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestTTL(t *testing.T) {
	for text, want := range map[string]TTL{
		"":                      {0, 1<<31 - 1},
		"ttl 5s 1h":             {5, 3600},
		"ttl 5 3600":            {5, 3600},
		"ttl 0s 0s":             {0, 0},
		"ttl 1h 1h":             {3600, 3600},
		"ttl 0 2147483647":      {0, 1<<31 - 1},
		"ttl 0 596523h14m7s":    {0, 1<<31 - 1},
		"ttl 1m30s 86400":       {90, 86400},
		"ttl 1000ms 2000000000": {1, 2_000_000_000},
	} {
		if c, err := Parse("Corefile", rootBlock(text)); err != nil || c.TTL != want {
			t.Errorf("%s: %+v, %v, want %+v", text, c, err, want)
		}
	}
	for text, want := range map[string]string{
		"ttl":                  `Corefile:3: ttl: has 0 values instead of MIN_TTL and MAX_TTL, write for example "ttl 5s 1h"`,
		"ttl 1h":               "has 1 values",
		"ttl 1s 2s 3s":         "has 3 values",
		"ttl 2s 1s":            "ttl: the minimum TTL, 2s, is above the maximum TTL, 1s, write the lower one first",
		"ttl 3601 1d":          "ttl: 3601 is out of bounds, write 0s to 1h",
		"ttl 0 2147483648":     "ttl: 2147483648 is out of bounds, write 0s to 596523h14m7s",
		"ttl 0 596523h14m8s":   "out of bounds",
		"ttl 500ms 1h":         "500ms is not a number of whole seconds",
		"ttl 5s forever":       `"forever" is not a duration`,
		"ttl 5s 1h {\nx\n}":    "ttl: has no block, write it on one line",
		"ttl 5s 1h\nttl 5s 1h": "ttl: stands in line 3 already, write it once",
	} {
		if _, err := Parse("Corefile", rootBlock(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestFollow(t *testing.T) {
	for text, want := range map[string]bool{"": true, "follow on": true, "follow off": false} {
		if c, err := Parse("Corefile", rootBlock(text)); err != nil || c.Follow != want {
			t.Errorf("%s: %+v, %v, want %v", text, c, err, want)
		}
	}
	for text, want := range map[string]string{
		"follow":                `Corefile:3: follow: has 0 values instead of one, write "follow off"`,
		"follow no":             `follow: "no" is not a switch, write on or off`,
		"follow ON":             `follow: "ON" is not a switch, write on or off`,
		"follow on off":         "has 2 values instead of one",
		"follow on {\nx\n}":     "follow: has no block",
		"follow on\nfollow off": "follow: stands in line 3 already",
	} {
		if _, err := Parse("Corefile", rootBlock(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	for _, d := range []string{"ttl 5s 1h", "follow off"} {
		_, err := Parse("Corefile", rootBlock("")+"a.test {\nforward . 192.0.2.2\n"+d+"\n}")
		if err == nil || !strings.Contains(err.Error(), `is an option of the whole agent, write it in the block of zone "." instead`) {
			t.Errorf("%s in another block: error %v", d, err)
		}
	}
}

func TestRebindRangesAreHostAddresses(t *testing.T) {
	for r, want := range map[string]string{
		"126.0.0.0/7":        "127.0.0.0/8 is loopback",
		"64.0.0.0/2":         "127.0.0.0/8 is loopback",
		"127.1.0.0/16":       "127.0.0.0/8 is loopback",
		"0.0.0.0/1":          "loopback",
		"0.0.0.0/0":          "loopback",
		"192.0.0.0/2":        "224.0.0.0/4 is multicast",
		"240.0.0.0/8":        "240.0.0.0/4 is reserved",
		"255.255.255.255":    "240.0.0.0/4 is reserved",
		"0.1.2.3":            "0.0.0.0/8 is unspecified",
		"::/8":               "::1/128 is loopback",
		"8000::/1":           "ff00::/8 is multicast",
		"fe00::/7":           "ff00::/8 is multicast",
		"::/0":               "loopback",
		"10.0.0.0/8":         "",
		"169.254.169.254":    "",
		"fe80::/10":          "",
		"2001:db8::/32":      "",
		"64:ff9b::/96":       "",
		"128.0.0.0/2":        "",
		"223.255.255.255/32": "",
	} {
		c, err := Parse("Corefile", ". {\nforward . 192.0.2.1\nrebind allow a.test "+r+"\n}\n")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", r, err)
		case want == "" && len(c.Rebind) != 1:
			t.Errorf("%s: %v", r, c.Rebind)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write a range of hosts")):
			t.Errorf("%s: error %v, want %q", r, err, want)
		}
	}
}

func TestNoHost(t *testing.T) {
	for a, want := range map[string]string{
		"127.255.0.1": "loopback", "::1": "loopback", "0.0.0.0": "unspecified", "::": "unspecified",
		"224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved",
		"126.255.255.255": "", "128.0.0.0": "", "::2": "", "fe80::1": "", "169.254.169.254": "",
	} {
		if got := NoHost(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %q, want %q", a, got, want)
		}
	}
}
