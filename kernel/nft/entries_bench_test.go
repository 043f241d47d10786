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

// BenchmarkApplyEntries is the cost of a transaction of entries, each in an op of its own.
func BenchmarkApplyEntries(b *testing.B) {
	ctx := context.Background()
	for _, held := range []timed.Held{timed.Absent, timed.SameComment, timed.Unknown} {
		for _, n := range []int{1, 256} {
			name := map[timed.Held]string{timed.Absent: "fresh", timed.SameComment: "refreshed", timed.Unknown: "replaced"}[held]
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				tables := inKernel(b)
				fatal.If(b, errors.Join(tables.Setup(ctx), tables.Apply(ctx, nft.State{Entries: []nft.EntrySet{{Name: "a"}}})))
				fatal.If(b, errors.Join(tables.Heartbeat(ctx), tables.Heartbeat(ctx)))
				tables.Checkpoint()
				ops := make([]timed.Op, n)
				for i := range ops {
					ops[i] = timed.Op{Set: "a", Entries: []timed.Entry{{Subject: pod4, Addr: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), Timeout: time.Hour, Comment: "of a benchmark"}}}
				}
				apply := func(held timed.Held) {
					for i := range ops {
						ops[i].Entries[0].Held = held
						ops[i].Entries[0].Timeout++
					}
					tables.ApplyEntries(ops)
					for i := range ops {
						fatal.If(b, ops[i].Err)
					}
				}
				if held != timed.Absent {
					apply(timed.Absent)
				}
				for b.Loop() {
					apply(held)
					if held == timed.Absent {
						b.StopTimer()
						for i := range ops {
							ops[i].Remove = true
						}
						tables.ApplyEntries(ops)
						for i := range ops {
							ops[i].Remove = false
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

// BenchmarkListEntries is the cost of reading one set.
func BenchmarkListEntries(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{1, 4096, 65536} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tables := inKernel(b)
			fatal.If(b, errors.Join(tables.Setup(ctx), tables.Apply(ctx, nft.State{Entries: []nft.EntrySet{{Name: "a"}}})))
			op := timed.Op{Set: "a"}
			for i := range n {
				op.Entries = append(op.Entries, entry(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), time.Hour, "of a benchmark", timed.Absent))
			}
			applied(b, tables, op)
			for b.Loop() {
				if got, _ := listed(b, tables, "a"); len(got["a"]) != n {
					b.Fatal(len(got["a"]))
				}
			}
		})
	}
}
