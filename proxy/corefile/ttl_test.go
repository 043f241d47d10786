package corefile

import (
	"strings"
	"testing"
)

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
