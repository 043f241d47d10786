package inject

import (
	"fmt"
	"slices"
	"sync"
)

// Sent is a packet that a Fake took.
type Sent struct {
	Iface  string
	Packet []byte
}

// Fake is an Interface in memory.
type Fake struct {
	mu     sync.Mutex
	sent   []Sent
	lines  map[string]func([]byte)
	broken error
	closed bool
}

var _ Interface = (*Fake)(nil)

// NewFake returns a fake whose node has no interfaces.
func NewFake() *Fake { return &Fake{lines: map[string]func([]byte){}} }

// SetInterface gives the node an interface; received is called with a copy of each
// packet that is sent to it, on a goroutine of its own. nil takes it away.
func (f *Fake) SetInterface(iface string, received func(packet []byte)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if received == nil {
		delete(f.lines, iface)
		return
	}
	f.lines[iface] = received
}

// SetUnsupported says that the kernel cannot inject, or can.
func (f *Fake) SetUnsupported(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken = nil; on {
		f.broken = errUnsupported
	}
}

// Send implements Interface.
func (f *Fake) Send(iface string, packet []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	received := f.lines[iface]
	switch {
	case f.broken != nil:
		return fmt.Errorf("inject into %s: %w", iface, f.broken)
	case f.closed:
		return fmt.Errorf("inject into %s: closed", iface)
	case received == nil:
		return fmt.Errorf("inject into %s: there is no such interface", iface)
	}
	f.sent = append(f.sent, Sent{iface, slices.Clone(packet)})
	go received(slices.Clone(packet))
	return nil
}

// Sent returns the frames sent so far.
func (f *Fake) Sent() []Sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// Close implements Interface.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}
