package mmsg

import (
	"net/netip"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxQueue bounds the packets that wait in a ReplyQueue.
const maxQueue = 1024

// ReplyQueues are the queues in which packets wait. The zero value has none.
type ReplyQueues struct {
	mu   sync.Mutex
	list []*ReplyQueue
}

// ReplyQueue collects packets of any goroutine for one unconnected UDP socket.
type ReplyQueue struct {
	all  *ReplyQueues
	conn syscall.RawConn
	done func(packets, lost int)

	mu     sync.Mutex
	queued replyBatch

	sending sync.Mutex // guards the following fields
	batch   replyBatch
	names   [batchSize]unix.RawSockaddrInet6
	writer  batchWriter
	lost    int
	failed  func(int, error) // made once
}

// replyBatch is packets, concatenated.
type replyBatch struct {
	bytes []byte
	ends  []int // of each in bytes
	to    []netip.AddrPort
}

// New returns a queue whose packets leave with Send. done is called with how many packets
// have left the queue, and how many of these the kernel refused. A full socket loses
// packets, because the sender also has other sockets' packets to send.
func (all *ReplyQueues) New(conn syscall.RawConn, done func(packets, lost int)) *ReplyQueue {
	q := &ReplyQueue{all: all, conn: conn, done: done}
	q.failed = func(int, error) { q.lost++ }
	q.writer.noWait = true
	return q
}

// Put queues a copy of the packet. False: too many packets wait, and it is not queued.
func (q *ReplyQueue) Put(packet []byte, to netip.AddrPort) bool {
	q.mu.Lock()
	b := &q.queued
	n := len(b.to)
	if n < maxQueue {
		b.bytes = append(b.bytes, packet...)
		b.ends, b.to = append(b.ends, len(b.bytes)), append(b.to, to)
	}
	q.mu.Unlock()
	if n == 0 {
		q.all.mu.Lock()
		q.all.list = append(q.all.list, q)
		q.all.mu.Unlock()
	}
	return n < maxQueue
}

// Send sends the packets of all queues.
func (all *ReplyQueues) Send() {
	for {
		all.mu.Lock()
		n := len(all.list)
		if n == 0 {
			all.mu.Unlock()
			return
		}
		q := all.list[n-1]
		all.list = all.list[:n-1]
		all.mu.Unlock()
		q.send()
	}
}

func (q *ReplyQueue) send() {
	q.sending.Lock()
	defer q.sending.Unlock()
	b := &q.batch
	q.mu.Lock()
	*b, q.queued = q.queued, *b
	q.mu.Unlock()
	q.lost = 0
	defer func() { // also after a panic
		n := len(b.to)
		b.bytes, b.ends, b.to = b.bytes[:0], b.ends[:0], b.to[:0]
		q.done(n, q.lost)
	}()
	begin := 0
	for i, end := range b.ends {
		name := &q.names[q.writer.count]
		n := putAddrPort(name, b.to[i])
		q.writer.add(b.bytes[begin:end], unsafe.Pointer(name), n)
		begin = end
		if q.writer.count == batchSize {
			q.writer.send(q.conn, q.failed)
		}
	}
	q.writer.send(q.conn, q.failed)
}
