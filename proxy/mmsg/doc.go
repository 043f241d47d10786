// Package mmsg moves UDP packets between the kernel and the process, many with one
// call of recvmmsg and sendmmsg, out of and into a Conn. A listener reads queries and answers them by a Reader,
// and sends replies that are ready later by a ReplyQueue. Sockets that are connected to
// an upstream are read by Receive and written by a SendBatch. A packet is bytes here:
// the package knows nothing of DNS. No packet costs an allocation.
package mmsg
