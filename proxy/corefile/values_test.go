package corefile

import (
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

func TestBoundsAreInclusive(t *testing.T) {
	s := func(arg string) stanza { return stanza{file: "f", line: 1, name: "x", args: []string{arg}} }
	for arg, ok := range map[string]bool{"1s": true, "2s": true, "999ms": false, "2001ms": false, "-1s": false, "1": false} {
		if _, err := only(s(arg), "x 1s", time.Second, 2*time.Second, stanza.span); (err == nil) != ok {
			t.Errorf("%s: %v", arg, err)
		}
	}
	for arg, ok := range map[string]bool{"1": true, "5": true, "0": false, "6": false, "1.0": false, "one": false, "": false} {
		if _, err := only(s(arg), "x 1", 1, 5, stanza.count); (err == nil) != ok {
			t.Errorf("%q: %v", arg, err)
		}
	}
	if _, err := only(stanza{name: "x", args: []string{"1", "2"}}, "x 1", 1, 5, stanza.count); err == nil {
		t.Error("two values were taken for one")
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
