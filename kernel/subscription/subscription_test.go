package subscription

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
)

// socket is what a subscription receives.
type socket chan received

type received struct {
	events int
	err    error
}

func (s socket) Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
	r, open := <-s
	if !open {
		return nil, nil, unix.EBADF
	}
	return make([]syscall.NetlinkMessage, r.events), nil, r.err
}

func (s socket) Close() {
	defer func() { _ = recover() }() // it is closed twice
	close(s)
}

// TestASubscriptionThatBreaksIsMadeAgain: after an error and a refusal, which are both
// told, and what came meanwhile is one token.
func TestASubscriptionThatBreaksIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sockets []socket
		var lost []error
		refused := errors.New("no buffers")
		subscribe := func() (Socket, error) {
			if len(lost) == 1 {
				return nil, refused
			}
			sockets = append(sockets, make(socket))
			return sockets[len(sockets)-1], nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		tokens, err := Watch(ctx, subscribe, func(all []syscall.NetlinkMessage) bool { return len(all) > 1 }, func(err error) { lost = append(lost, err) })
		fatal.If(t, err)
		came := func() bool {
			synctest.Wait()
			select {
			case <-tokens:
				return true
			default:
				return false
			}
		}
		for what, c := range map[received]bool{{events: 1}: false, {events: 2}: true, {err: unix.ENOBUFS}: true} {
			if sockets[0] <- what; came() != c {
				t.Errorf("%+v: a token %v", what, !c)
			}
		}
		sockets[0] <- received{err: unix.EIO}
		if came() {
			t.Error("a token before it subscribes again")
		}
		time.Sleep(2 * pause)
		if !came() || len(sockets) != 2 || !slices.Equal(lost, []error{unix.EIO, refused}) {
			t.Fatalf("%d subscriptions, lost %v", len(sockets), lost)
		}
		if sockets[1] <- (received{events: 2}); !came() {
			t.Error("no token of the second subscription")
		}
		cancel()
		synctest.Wait()
		if len(lost) != 2 {
			t.Errorf("the end is told as a loss: %v", lost)
		}
	})
}
