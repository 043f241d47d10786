package selftest

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

const (
	// probeZone ends the name of each probe, and probeEnd is the zone on the wire (RFC 1035 §3.1).
	probeZone = "self-test.namegate."
	probeEnd  = "\x09self-test\x08namegate\x00"
	// probeNonce is the length of the random part of a probe's name in bytes: it cannot be
	// guessed. Its hexadecimal digits are the first label.
	probeNonce = 16
	// probeWire is the length of a probe's name on the wire.
	probeWire = 1 + 2*probeNonce + len(probeEnd)
	// headerSize is that of a DNS message's header (RFC 1035 §4.1.1).
	headerSize = 12
)

// Probes are the names of which a query is expected. The zero value has none.
type Probes struct {
	pending sync.Map // a func() for each name on the wire
}

// Expect returns a unique absolute name, as the dns package spells it. arrived is closed
// when Take gets a query for it. done ends the wait and must be called.
func (p *Probes) Expect() (name string, arrived <-chan struct{}, done func()) {
	var nonce [probeNonce]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	label, came := hex.EncodeToString(nonce[:]), make(chan struct{})
	wire := string(rune(len(label))) + label + probeEnd
	p.pending.Store(wire, sync.OnceFunc(func() { close(came) }))
	return label + "." + probeZone, came, func() { p.pending.Delete(wire) }
}

// Take tells whether a packet is a query for a pending probe, and if it is says
// that it arrived.
func (p *Probes) Take(packet []byte) bool {
	const end = headerSize + probeWire
	if len(packet) < end || string(packet[end-len(probeEnd):end]) != probeEnd {
		return false
	}
	arrived, ok := p.pending.Load(string(packet[headerSize:end]))
	if ok {
		arrived.(func())()
	}
	return ok
}
