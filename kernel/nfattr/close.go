package nfattr

import "sync"

// mostClosing bounds the sockets that wait to be closed.
const mostClosing = 256

var closing = sync.OnceValue(func() chan<- func() {
	waiting := make(chan func(), mostClosing)
	go func() {
		for f := range waiting {
			f()
		}
	}()
	return waiting
})

// CloseLater has a socket of netfilter closed, and does not wait for it. A close waits until
// the kernel has freed what the last transactions of nftables in the namespace deleted, an RCU
// grace period later (nft_rcv_nl_event of net/netfilter/nf_tables_api.c): 12 to 20 ms.
func CloseLater(f func()) {
	select {
	case closing() <- f:
	default:
		f()
	}
}
