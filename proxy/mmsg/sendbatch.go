package mmsg

import "syscall"

// Socket is a connected socket.
type Socket interface {
	comparable
	// Raw returns the socket for system calls, always the same.
	Raw() syscall.RawConn
	// Unsent is called with each packet that the kernel refuses.
	Unsent(packet []byte, err error)
}

// SendBatch collects packets for connected sockets and sends them together. It belongs
// to one goroutine. The zero value is empty.
type SendBatch[S Socket] struct {
	sockets [batchSize]S
	packets [batchSize][]byte // of room
	room    []byte
	count   int
	writer  batchWriter
	first   int // of sockets, that is being sent to
	failed  func(int, error)
}

// Reserve makes room for a packet: it sends a full batch.
func (b *SendBatch[S]) Reserve() {
	if b.count == batchSize {
		b.Send()
	}
}

// Add queues a copy of a packet, for which Reserve made room.
func (b *SendBatch[S]) Add(to S, packet []byte) {
	begin := len(b.room)
	b.room = append(b.room, packet...)
	b.sockets[b.count], b.packets[b.count] = to, b.room[begin:]
	b.count++
}

// Send sends the queued packets, neighbours of one socket with one call.
func (b *SendBatch[S]) Send() {
	if b.failed == nil {
		b.failed = func(i int, err error) { b.sockets[b.first+i].Unsent(b.packets[b.first+i], err) }
	}
	defer func() { // also after a panic: nothing is sent twice
		clear(b.sockets[:b.count])
		clear(b.packets[:b.count])
		b.count, b.room = 0, b.room[:0]
	}()
	for b.first = 0; b.first < b.count; {
		s := b.sockets[b.first]
		end := b.first
		for ; end < b.count && b.sockets[end] == s; end++ {
			b.writer.add(b.packets[end], nil, 0)
		}
		b.writer.send(s.Raw(), b.failed)
		b.first = end
	}
}
