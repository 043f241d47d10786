package ipset_test

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/ipset"
)

// TestLongWritesLetOthersIn: who writes one address does not wait for another's half a
// million.
func TestLongWritesLetOthersIn(t *testing.T) {
	ownNamespace(t)
	k, err := ipset.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, name := range []string{"long", "short"} {
		if err := k.Ensure(ipset.Set{Name: name, Type: ipset.HashIP, HashSize: 1 << 17, MaxElem: 1 << 20}); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		if sizes["long"] > 0 {
			break
		}
	}
	at := time.Now()
	if err := k.Add("short", ipset.Entry{Addr: v4}); err != nil {
		t.Fatal(err)
	}
	waited := time.Since(at)
	if over.Load() {
		t.Errorf("one address waited %v until all others were written", waited)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("one waited %v, all took %v", waited, time.Since(began))
	if sizes, err := k.Sizes("long", "short"); err != nil || sizes["long"] != len(entries) || sizes["short"] != 1 {
		t.Errorf("sizes %v, %v", sizes, err)
	}
}
