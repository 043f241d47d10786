package nflog

import (
	"context"
	"sync/atomic"
)

// Fake is an Interface in memory.
type Fake struct {
	packets chan Packet
	lost    atomic.Uint64
}

var _ Interface = (*Fake)(nil)

// fakeBuffer is how many packets a Fake keeps until they are taken.
const fakeBuffer = 1024

// NewFake returns a fake that nothing has come to.
func NewFake() *Fake { return &Fake{packets: make(chan Packet, fakeBuffer)} }

// Send makes a packet come. One that finds no room is lost.
func (f *Fake) Send(p Packet) {
	select {
	case f.packets <- p:
	default:
		f.lost.Add(1)
	}
}

// Packets implements Interface.
func (f *Fake) Packets(ctx context.Context, each func(Packet)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-f.packets:
			each(p)
		}
	}
}

// Waiting returns how many packets were sent and not taken yet.
func (f *Fake) Waiting() int { return len(f.packets) }

// Lost implements Interface.
func (f *Fake) Lost() uint64 { return f.lost.Load() }
