package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/testkit/fatal"
)

// BenchmarkUses is what it costs to know of 100,000 grants in sets of 4,000 whether they were
// used: to list them, and to refresh one and 64 in place.
func BenchmarkUses(b *testing.B) {
	ctx := context.Background()
	const sets, each = 25, 4000
	entries := func(n int, held timed.Held) (out []timed.Entry) {
		for i := range n {
			out = append(out, timed.Entry{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Protocol: 6, Port: 443, Timeout: time.Hour, Comment: "www.example.org", Held: held})
		}
		return out
	}
	var names []string
	var of []nft.GrantSet
	for i := range sets {
		names, of = append(names, fmt.Sprint("g", i)), append(of, nft.GrantSet{Name: fmt.Sprint("g", i), Ported: true})
	}
	for what, n := range map[string]int{"list": 0, "refresh one": 1, "refresh 64": 64} {
		for _, uses := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/uses=%v", what, uses), func(b *testing.B) {
				tables := inKernel(b)
				fatal.If(b, errors.Join(tables.Setup(ctx), tables.Apply(ctx, nft.State{}), tables.Heartbeat(ctx), tables.Heartbeat(ctx), tables.AddGrantSets(ctx, of)))
				for _, name := range names {
					applied(b, tables, timed.Op{Set: name, Grants: true, Count: uses, Entries: entries(each, timed.Absent)})
				}
				refreshed := []timed.Op{{Set: names[0], Grants: true, Count: uses, Entries: entries(n, timed.SameComment)}}
				for b.Loop() {
					if n > 0 {
						tables.ApplyEntries(refreshed)
						fatal.If(b, refreshed[0].Err)
						continue
					}
					found := 0
					fatal.If(b, tables.ListGrants(names, func(_ string, part []timed.Entry) { found += len(part) }))
					if found != sets*each {
						b.Fatal(found)
					}
				}
			})
		}
	}
}
