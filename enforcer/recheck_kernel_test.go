package enforcer_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/fatal"
)

// Messages and attributes of linux/netfilter/nfnetlink_queue.h.
const (
	subsysQueue   = 3
	queuePacket   = 0
	queueVerdict  = 1
	queueConfig   = 2
	queueHeader   = 1
	queueDecision = 2
	queueCommand  = 1
	queueParams   = 2
	accept        = 1
)

// heldQueue is the number of the queue that holds packets back.
const heldQueue = 7

// held is a queue of packets that wait for a verdict.
type held struct {
	t  *testing.T
	fd int
}

// hold lets the packets that a condition of iptables is true for wait between the chains
// that admit and the end of their way.
func (p *peering) hold(condition string) *held {
	p.t.Helper()
	h := &held{t: p.t}
	err := p.Node.Do(func() (err error) {
		h.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	fatal.If(p.t, err)
	p.t.Cleanup(func() { unix.Close(h.fd) })
	h.send(queueConfig, unix.NLM_F_ACK, queueCommand, []byte{1, 0, 0, 0}) // bind
	if typ, _ := h.receive(); typ != unix.NLMSG_ERROR {
		p.t.Fatalf("the queue answers with %d", typ)
	}
	h.send(queueConfig, 0, queueParams, []byte{0, 0, 0, 0, 1}) // no more of a packet than its number
	words := append([]string{"-t", "filter", "-A", "FORWARD"}, strings.Fields(condition)...)
	if _, err := p.Node.Run("iptables", append(words, "-j", "NFQUEUE", "--queue-num", strconv.Itoa(heldQueue))...); err != nil {
		p.t.Fatal(err)
	}
	return h
}

func (h *held) send(typ, flags uint16, attr int, value []byte) {
	h.t.Helper()
	b, begin := nfattr.AppendHeader(nil, subsysQueue<<8|typ, unix.NLM_F_REQUEST|flags, 1)
	binary.BigEndian.PutUint16(b[begin+18:], heldQueue)
	b = nfattr.Append(b, attr, value)
	nfattr.EndMessage(b, begin)
	fatal.If(h.t, unix.Sendto(h.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// receive returns a message's type and what follows its two headers.
func (h *held) receive() (typ uint16, body []byte) {
	h.t.Helper()
	b := make([]byte, 8192)
	n, _, err := unix.Recvfrom(h.fd, b, 0)
	fatal.If(h.t, err)
	typ = binary.NativeEndian.Uint16(b[4:])
	if errno := int32(binary.NativeEndian.Uint32(b[16:])); typ == unix.NLMSG_ERROR && errno != 0 {
		h.t.Fatalf("the queue refuses: %v", unix.Errno(-errno))
	}
	return typ, b[unix.SizeofNlMsghdr+nl.SizeofNfgenmsg : n]
}

// next waits for a packet and returns its number.
func (h *held) next() []byte {
	h.t.Helper()
	for {
		if typ, body := h.receive(); typ == subsysQueue<<8|queuePacket {
			return nfattr.Parse(body)[queueHeader][:4]
		}
	}
}

func (h *held) release(number []byte) {
	h.t.Helper()
	h.send(queueVerdict, 0, queueDecision, append(binary.BigEndian.AppendUint32(nil, accept), number...))
}

// TestAPacketUnderWayIsCutOnTheKernel holds the first packet of a connection back, which
// was judged already, while what allowed it goes and the connections are cut. When it
// arrives the connection opens, and is cut soon.
func TestAPacketUnderWayIsCutOnTheKernel(t *testing.T) {
	eachPlane(func(t *testing.T, plane string) { testAPacketUnderWay(newPeering(t, plane, lab.Routed)) })(t)
}

func testAPacketUnderWay(p *peering) {
	t := p.t
	client, db := p.Pod("client"), p.Pod("db")
	p.apply(netpol("client", "tcp/80 db other"))
	stays := p.dial("client", p.Pod("other").Addr4, 80)
	h := p.hold("-s " + client.Addr4.String() + " -d " + db.Addr4.String() + " -p tcp --syn")
	// The first packet is not sent again after a second, however long the change takes.
	once := "table ip once { chain c { type filter hook output priority 0; ip daddr != " + db.Addr4.String() + " accept; tcp flags & (syn | ack) != syn accept; limit rate 1/hour burst 1 packets accept; drop; }; }"
	fatal.If(t, client.Pipe(once, "nft", "-f", "-"))
	dialled := make(chan net.Conn, 1)
	go func() {
		c, err := client.Dial("tcp", netip.AddrPortFrom(db.Addr4, 80).String(), time.Minute)
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	number := h.next()
	p.apply(netpol("client", "tcp/80 other"))
	h.release(number)
	c := <-dialled
	if c == nil {
		t.FailNow()
	}
	defer c.Close()
	p.goOn("its packet was judged before the change", true, c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- p.Node.Do(func() error { return p.e.RunReconcile(ctx) })
	}()
	fatal.Await(t, "the connection is cut", func() bool { return lab.Echo(c, lab.Patience) != lab.Answered })
	p.goOn("of a peer that stays", true, stays)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
