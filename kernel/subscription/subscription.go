package subscription

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// pause is how long after an error the next subscription is made.
const pause = time.Second

// Socket is a subscribed socket; *nl.NetlinkSocket is one.
type Socket interface {
	Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error)
	Close()
}

// Groups subscribes to groups of a netlink protocol, in the network namespace of the
// calling thread.
func Groups(protocol int, groups ...uint) func() (Socket, error) {
	return func() (Socket, error) {
		s, err := nl.Subscribe(protocol, groups...)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

// Watch sends a token after events that concern the caller, until ctx ends; events while a
// token waits are one token. Events that did not fit into the socket's buffer may have
// concerned it. After any other error lost is called, and Watch subscribes again, which is
// a token too. The error is that of the first subscription.
func Watch(ctx context.Context, subscribe func() (Socket, error), concerns func([]syscall.NetlinkMessage) bool, lost func(error)) (<-chan struct{}, error) {
	s, err := subscribe()
	if err != nil {
		return nil, err
	}
	out := make(chan struct{}, 1)
	token := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	go func() {
		for {
			for err = receive(ctx, s, concerns, token); err != nil; s, err = subscribe() {
				if ctx.Err() != nil {
					return
				}
				lost(err)
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
			}
			token()
		}
	}()
	return out, nil
}

// receive reads events until an error, and closes the socket.
func receive(ctx context.Context, s Socket, concerns func([]syscall.NetlinkMessage) bool, token func()) error {
	defer context.AfterFunc(ctx, s.Close)()
	defer s.Close()
	for {
		events, _, err := s.Receive()
		overrun := errors.Is(err, syscall.ENOBUFS)
		if err != nil && !overrun {
			return err
		}
		if overrun || concerns(events) {
			token()
		}
	}
}
