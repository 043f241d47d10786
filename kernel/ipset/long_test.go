package ipset_test

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

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
		err := k.Add("long", entries...)
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
	fatal.If(t, k.Add("short", ipset.Entry{Addr: v4}))
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
