package listener

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/proxy/mmsg"
)

// pause is how long a loop rests after an error that passes, such as a lack of
// buffers or file descriptors.
const pause = 5 * time.Millisecond

// readUDP takes packets off the socket and hands them to the handler.
func (l *listener) readUDP() {
	for !final(l.reader.Receive(l.receive)) {
		time.Sleep(pause)
	}
}

// receive takes packets that came together.
func (l *listener) receive(packets int) (goOn bool) {
	l.got = packets
	l.s.options.Protect("a batch of packets", l.take)
	return true
}

// takeAll hands over the packets that came together, and sends the replies to them.
func (l *listener) takeAll() {
	defer func() {
		if lost := l.reader.Flush(); lost > 0 {
			l.s.options.Counters.RepliesLost.Add(uint64(lost))
		}
	}()
	l.handler.Packets(Batch{l, l.got})
}

// Batch is packets that arrived together, as long as Packets runs.
type Batch struct {
	l *listener
	// Len is how many packets there are.
	Len int
}

// Packet returns packet i.
func (b Batch) Packet(i int) Packet {
	bytes, from := b.l.reader.Packet(i)
	return Packet{bytes, from, b.l, i}
}

// Packet is a packet that arrived over UDP. It is lent as long as its Batch.
type Packet struct {
	Bytes []byte
	From  netip.AddrPort
	l     *listener
	i     int
}

// NewPacket returns a packet without a socket, whose replies wait in r: for tests of
// a handler.
func NewPacket(r *mmsg.Reader, packet []byte, from netip.AddrPort) Packet {
	return Packet{packet, from, &listener{reader: r}, 0}
}

// Room returns the buffer for the reply.
func (p *Packet) Room() []byte { return p.l.reader.Room() }

// Reply sends the first n bytes of Room with the replies to the Batch. Each packet has at
// most one reply.
func (p *Packet) Reply(n int) { p.l.reader.Reply(p.i, n) }

// Later returns the Replier for a reply that is made later. The packet is in flight until
// its Done.
func (p *Packet) Later() Replier {
	p.l.work.Add(1)
	return Replier{p.l, p.From}
}

// Replier replies to a client over UDP.
type Replier struct {
	l  *listener
	to netip.AddrPort
}

// Reply sends the reply; batched: with the next SendReplies. It counts as the listener's work
// until it is sent.
func (r *Replier) Reply(packet []byte, batched bool) {
	l := r.l
	if !batched {
		defer l.s.replies.Send()
		l.s.options.Step("reply")
	}
	l.work.Add(1)
	for !l.replies.Put(packet, r.to) {
		l.s.replies.Send()
	}
}

// Done ends the packet. It is called once.
func (r *Replier) Done() { r.l.work.Done() }
