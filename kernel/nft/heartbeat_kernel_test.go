package nft_test

import (
	"context"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nft"
)

// BenchmarkHeartbeat is what an idle agent costs a node each second.
func BenchmarkHeartbeat(b *testing.B) {
	alive(b, inKernel(b))
}

// BenchmarkHeartbeatByProgram is the same by the program nft.
func BenchmarkHeartbeatByProgram(b *testing.B) {
	inKernel(b)
	open := func(f knftables.Family) knftables.Interface {
		table, err := knftables.New(f, nft.TableName)
		if err != nil {
			b.Fatal(err)
		}
		return table
	}
	alive(b, nft.New(open(knftables.InetFamily), open(knftables.BridgeFamily), mark))
}

// alive runs in the benchmark's own goroutine, whose thread has the namespace.
func alive(b *testing.B, tables *nft.Tables) {
	ctx := context.Background()
	if err := tables.Setup(ctx); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := tables.Heartbeat(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
