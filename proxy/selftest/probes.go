package selftest

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// probeZone ends the name of each probe.
const probeZone = "self-test.namegate."

// probeNonce is the length of the random part of a probe's name in bytes: it cannot be
// guessed.
const probeNonce = 16

// probeWire is the length of a probe's name on the wire: the nonce in hex, the two
// labels of the zone, a length before each, the root.
const probeWire = 1 + 2*probeNonce + 1 + len("self-test") + 1 + len("namegate") + 1

// headerSize is that of a DNS message's header (RFC 1035 §4.1.1).
const headerSize = 12

// Probes are the names of which a query is waited for. The zero value has none.
type Probes struct {
	// pending is read for each packet and never changed in place; nil: there are
	// none, which is nearly always.
	pending atomic.Pointer[map[string]func()]
	mu      sync.Mutex // of writing pending
}

// Expect returns a unique absolute name, as the dns package spells it. arrived is closed
// when Take gets a query for it. done ends the wait and must be called.
func (p *Probes) Expect() (name string, arrived <-chan struct{}, done func()) {
	var nonce [probeNonce]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	name = hex.EncodeToString(nonce[:]) + "." + probeZone
	came := make(chan struct{})
	wire := wireName(name)
	p.change(func(all map[string]func()) { all[wire] = sync.OnceFunc(func() { close(came) }) })
	return name, came, func() {
		p.change(func(all map[string]func()) { delete(all, wire) })
	}
}

func (p *Probes) change(edit func(map[string]func())) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]func(){}
	if now := p.pending.Load(); now != nil {
		maps.Copy(all, *now)
	}
	edit(all)
	if len(all) == 0 {
		p.pending.Store(nil)
		return
	}
	p.pending.Store(&all)
}

// Take tells whether a packet is a query for a pending probe, and if it is says
// that it arrived.
func (p *Probes) Take(packet []byte) bool {
	pending := p.pending.Load()
	if pending == nil || len(packet) < headerSize+probeWire {
		return false
	}
	came, ok := (*pending)[string(packet[headerSize:headerSize+probeWire])]
	if ok {
		came()
	}
	return ok
}

// wireName spells an absolute name as a message does (RFC 1035 §3.1).
func wireName(name string) string {
	var b strings.Builder
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		b.WriteByte(byte(len(label)))
		b.WriteString(label)
	}
	b.WriteByte(0)
	return b.String()
}
