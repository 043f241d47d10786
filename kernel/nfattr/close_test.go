package nfattr

import "testing"

// TestCloseLaterDoesNotWait: sockets whose close waits hold up no caller, and as many as there is
// room for are closed in order.
func TestCloseLaterDoesNotWait(t *testing.T) {
	idle := make(chan bool) // behind the sockets of other tests
	CloseLater(func() { close(idle) })
	<-idle
	release, closed := make(chan bool), make(chan int, mostClosing)
	CloseLater(func() { <-release })
	for i := range mostClosing - 1 {
		CloseLater(func() { closed <- i })
	}
	if n := len(closed); n > 0 {
		t.Fatalf("%d sockets are closed before the first one", n)
	}
	close(release)
	for i := range mostClosing - 1 {
		if got := <-closed; got != i {
			t.Fatalf("socket %d is closed, want %d", got, i)
		}
	}
}
