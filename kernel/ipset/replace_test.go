package ipset_test

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// TestReplace covers every header and type that a set of our name may have.
func TestReplace(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		plain := ipset.Set{Name: "NG4-a", Type: ipset.HashIP}
		for what, old := range map[string]*ipset.Set{
			"nothing": nil, "the same": {Name: "NG4-a", Type: ipset.HashIP, Timeout: true, Comment: true}, "no timeouts": &plain,
			"another type": {Name: "NG4-a", Type: ipset.HashIPPort}, "another family": {Name: "NG4-a", Type: ipset.HashIP, IPv6: true},
		} {
			if old != nil {
				ensure(t, i, *old)
				if old.Type == ipset.HashIP && !old.IPv6 {
					fatal.If(t, add(i, "NG4-a", ipset.Entry{Addr: entry("192.0.2.9").Addr}))
				}
			}
			if err := ipset.Replace(i, grants("NG4-a"), entry("192.0.2.1"), entry("192.0.2.2")); err != nil {
				t.Errorf("in place of %s: %v", what, err)
			}
			diff.Equal(t, "192.0.2.1 192.0.2.2", addresses(t, i, "NG4-a"), "in place of", what)
			if err := add(i, "NG4-a", entry("192.0.2.3")); err != nil {
				t.Errorf("in place of %s the set takes no timeouts: %v", what, err)
			}
			sizes, err := i.Sizes()
			if err != nil || !maps.Equal(sizes, map[string]int{"NG4-a": 3}) {
				t.Errorf("in place of %s: sets %v, %v", what, sizes, err)
			}
			fatal.If(t, i.Destroy("NG4-a"))
		}
	})
}

// A rule still refers to a replaced set by its name.
func TestReplaceASetThatARuleReferences(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	i, err := ipset.Open()
	fatal.If(t, err)
	defer i.Close()
	ensure(t, i, ipset.Set{Name: "NG4-a", Type: ipset.HashIP}, ipset.Set{Name: "NG4-b", Type: ipset.HashIPPort})
	for _, set := range []string{"NG4-a", "NG4-b"} {
		if out, err := exec.Command("iptables-nft", "-A", "FORWARD", "-m", "set", "--match-set", set, "dst", "-j", "DROP").CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	if err := ipset.Replace(i, grants("NG4-a"), entry("192.0.2.1")); err != nil {
		t.Error(err)
	}
	out, err := exec.Command("iptables-nft", "-S", "FORWARD").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--match-set NG4-a dst") {
		t.Errorf("%s, %v", out, err)
	}
	if err := i.Destroy("NG4-a"); !ipset.IsBusy(err) {
		t.Errorf("no rule asks the set: %v", err)
	}
	if err := ipset.Replace(i, grants("NG4-b")); !ipset.IsMismatch(err) {
		t.Errorf("of another type, and a rule asks it: %v", err)
	}
	if sizes, err := i.Sizes(); len(sizes) != 2 || err != nil {
		t.Errorf("sets %v, %v", sizes, err)
	}
}

// TestLongWritesLetOthersIn: a write of one address does not wait for another's half a
// million.
func TestLongWritesLetOthersIn(t *testing.T) {
	netns.Own(t)
	k, err := ipset.Open()
	fatal.If(t, err)
	defer k.Close()
	for _, name := range []string{"long", "short"} {
		fatal.If(t, k.Ensure(ipset.Set{Name: name, Type: ipset.HashIP, HashSize: 1 << 17, MaxElem: 1 << 20}))
	}
	entries := make([]ipset.Entry, 500_000)
	for i := range entries {
		entries[i].Addr = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i))))
	}
	var over atomic.Bool
	done := make(chan error)
	began := time.Now()
	go func() {
		err := add(k, "long", entries...)
		over.Store(true)
		done <- err
	}()
	for {
		sizes, err := k.Sizes("long")
		fatal.If(t, err)
		if sizes["long"] > 0 {
			break
		}
	}
	at := time.Now()
	fatal.If(t, add(k, "short", ipset.Entry{Addr: v4}))
	waited := time.Since(at)
	if over.Load() {
		t.Errorf("one address waited %v until all others were written", waited)
	}
	fatal.If(t, <-done)
	t.Logf("one waited %v, all took %v", waited, time.Since(began))
	if sizes, err := k.Sizes("long", "short"); err != nil || sizes["long"] != len(entries) || sizes["short"] != 1 {
		t.Errorf("sizes %v, %v", sizes, err)
	}
}
