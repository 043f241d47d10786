package nflog_test

import (
	"context"
	"testing"

	"github.com/namegate/namegate/kernel/nflog"
)

// TestFake: packets come in their order, what finds no room is lost and counted, and
// the end of the context is no error.
func TestFake(t *testing.T) {
	t.Parallel()
	f := nflog.NewFake()
	for i := range 1030 {
		f.Send(nflog.Packet{Protocol: uint8(i % 7)})
	}
	if f.Waiting() != 1024 || f.Lost() != 6 {
		t.Errorf("%d wait, %d are lost", f.Waiting(), f.Lost())
	}
	ctx, stop := context.WithCancel(context.Background())
	n := 0
	err := f.Packets(ctx, func(p nflog.Packet) {
		if p.Protocol != uint8(n%7) {
			t.Errorf("packet %d is %+v", n, p)
		}
		if n++; n == 1024 {
			stop()
		}
	})
	if err != nil || n != 1024 {
		t.Errorf("%d came, %v", n, err)
	}
}
