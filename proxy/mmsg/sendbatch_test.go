package mmsg

import (
	"bytes"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
)

// peer is a connected socket, and the packets that it did not send.
type peer struct {
	*net.UDPConn
	raw    syscall.RawConn
	unsent [][]byte
}

func (p *peer) Raw() syscall.RawConn { return p.raw }

func (p *peer) Unsent(packet []byte, _ error) { p.unsent = append(p.unsent, packet) }

func peerOf(t *testing.T, server *Conn) *peer {
	t.Helper()
	p := &peer{UDPConn: clientOf(t, server)}
	var err error
	if p.raw, err = p.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSendBatchReachesEachSocket: more packets than fit into one call, alternating and in
// a row. Packets of a closed socket, and only these, are returned.
func TestSendBatchReachesEachSocket(t *testing.T) {
	var peers []*peer
	var servers []*Conn
	for range 3 {
		_, server := readerOn(t, "127.0.0.1:0")
		servers, peers = append(servers, server), append(peers, peerOf(t, server))
	}
	_ = peers[1].Close()
	var b SendBatch[*peer]
	var want [3]int
	for i := range 3*batchSize + 5 {
		k := i % 3
		if i > batchSize {
			k = i / 7 % 3
		}
		b.Reserve()
		b.Add(peers[k], []byte{byte(i)})
		want[k]++
	}
	b.Send()
	for k, p := range peers {
		got := len(p.unsent)
		if k != 1 && got == 0 {
			_ = servers[k].SetReadDeadline(time.Now().Add(time.Minute))
			_ = Receive(servers[k], func(in *ReceiveBatch) bool {
				got += in.Len()
				return got < want[k]
			})
		}
		diff.Equal(t, want[k], got, "socket", k, "packets")
	}
	if b.count != 0 || b.sockets[0] != nil || b.packets[0] != nil {
		t.Error("packets are held after Send")
	}
}

// TestReceive hands out each packet once, complete and in order, until it is stopped.
func TestReceive(t *testing.T) {
	_, server := readerOn(t, "127.0.0.1:0")
	c := clientOf(t, server)
	const packets = 3*receiveSize + 1
	for i := range packets {
		if _, err := c.Write(bytes.Repeat([]byte{byte(i)}, 200*(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	next := 0
	err := Receive(server, func(b *ReceiveBatch) bool {
		for i := range b.Len() {
			if p := b.Packet(i); len(p) != min(200*(next+1), PacketBytes) || p[0] != byte(next) {
				t.Errorf("packet %d has %d bytes", next, len(p))
			}
			next++
		}
		return next < packets
	})
	if next != packets || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d packets, %v", next, err)
	}
	_ = server.Close()
	diff.Is(t, net.ErrClosed, Receive(server, func(*ReceiveBatch) bool { return true }), "a closed socket")
}

func TestReceiveNamesARefusal(t *testing.T) {
	_, server := readerOn(t, "127.0.0.1:0")
	c := clientOf(t, server)
	_ = server.Close()
	_, _ = c.Write([]byte("x"))
	var failed *net.OpError
	if err := Receive(connOf(t, c), func(*ReceiveBatch) bool { return true }); !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
}
