package enforcer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/policy"
)

func TestServingAddresses(t *testing.T) {
	w := newWorld(t)
	serving := w.e.Status().Serving
	if len(serving) != 4 {
		t.Fatalf("serving %v, want one address for each resolver and endpoint", serving)
	}
	seen := map[netip.Addr]bool{}
	all, _ := w.links.Addrs()
	for dialled, a := range serving {
		if dialled.Is4() != a.Is4() || seen[a] || !servingRange(a) || !slices.Contains(all, a) {
			t.Errorf("%s is served on %s", dialled, a)
		}
		seen[a] = true
	}
	w.e.Stop()
	all, _ = w.links.Addrs()
	if !slices.Contains(all, endpoint4) || !slices.Contains(all, endpoint6) {
		t.Error("the virtual endpoint went with the agent")
	}
	for a := range seen {
		if slices.Contains(all, a) {
			t.Errorf("%s stays after the agent", a)
		}
	}
}

func TestFreeAddr(t *testing.T) {
	tests := []struct {
		v6    bool
		taken string
		want  string
	}{
		{false, "", "169.254.20.64"},
		{false, "169.254.20.64 169.254.20.66", "169.254.20.65"},
		{true, "", "fd5c:7a1e:93b4::1:0"},
		{true, "fd5c:7a1e:93b4::1:0 169.254.20.64", "fd5c:7a1e:93b4::1:1"},
	}
	for _, test := range tests {
		if got, err := freeAddr(test.v6, addrs(test.taken)); err != nil || got != addr(test.want) {
			t.Errorf("beside %q: %s, %v; want %s", test.taken, got, err, test.want)
		}
	}
	for _, v6 := range []bool{false, true} {
		var taken []netip.Addr
		for {
			a, err := freeAddr(v6, taken)
			if err != nil {
				if !strings.Contains(err.Error(), "remove those of agents that are gone") {
					t.Errorf("the error does not say what to do: %v", err)
				}
				break
			}
			if !servingRange(a) || len(taken) > 256 {
				t.Fatalf("%s is no serving address", a)
			}
			taken = append(taken, a)
		}
	}
}

func TestServingRange(t *testing.T) {
	for a, want := range map[string]bool{
		"169.254.20.53": false, "169.254.20.63": false, "169.254.20.64": true, "169.254.20.254": true, "169.254.20.255": false,
		"192.0.2.1": false, "fd5c:7a1e:93b4::53": false, "fd5c:7a1e:93b4::1:0": true, "fd5c:7a1e:93b4::1:ff": true, "fd5c:7a1e:93b4::1:100": false, "2001:db8::1": false,
	} {
		if got := servingRange(addr(a)); got != want {
			t.Errorf("servingRange(%s) = %v", a, got)
		}
	}
}

func TestResolversStayOpenUnlessToldOtherwise(t *testing.T) {
	for _, closed := range []bool{false, true} {
		w := newNode(t)
		w.cfg.FailClosed = closed
		w.restart()
		w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow")}, pol("allow"))
		for _, d := range [][2]string{{"10.1.0.5", "192.0.2.53"}, {"2001:db8:1::5", "2001:db8::53"}} {
			if got := w.dials(d[0], d[1], 53); got == closed {
				t.Errorf("failclosed %v: %s reaches the resolver directly: %v", closed, d[0], got)
			}
		}
		for dialled, serving := range w.e.Status().Serving {
			src := "10.1.0.5"
			if serving.Is6() {
				src = "2001:db8:1::5"
			}
			if !w.dials(src, serving.String(), 53) {
				t.Errorf("failclosed %v: the agent's own address %s for %s is closed", closed, serving, dialled)
			}
		}
		if got := strings.Contains(w.inet.Dump(), "backends4 { 0 : 192.0.2.53 . 53 }"); got == closed {
			t.Errorf("failclosed %v: fallback %v", closed, got)
		}
	}
}

// on tells whether interception is switched on in the kernel.
func (w *world) on() bool { return strings.Contains(w.inet.Dump(), "alive { 53 }") }

func TestBeatOnlyAfterAnAnswer(t *testing.T) {
	w := newWorld(t)
	mute := errors.New("no answer")
	if err := w.e.beat(context.Background(), func(context.Context) error { return mute }); !errors.Is(err, mute) || w.on() || w.e.Status().Intercepting {
		t.Errorf("without an answer: %v, on: %v", err, w.on())
	}
	if err := w.e.beat(context.Background(), func(context.Context) error { return nil }); err != nil || !w.on() || !w.e.Status().Intercepting {
		t.Errorf("after an answer: %v, on: %v", err, w.on())
	}
	w.clock.pass(3 * time.Second)
	if w.e.Status().Intercepting {
		t.Error("three seconds after the last heartbeat the status says that it intercepts")
	}
	hung := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	began := time.Now()
	if err := w.e.beat(context.Background(), hung); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 60*heartbeat {
		t.Errorf("a hung proxy: %v after %v", err, time.Since(began))
	}
}

// A proxy that answers itself late still answers pods: interception goes on.
func TestBeatOfABusyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		late := func(ctx context.Context) error {
			select {
			case <-time.After(1900 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := w.e.beat(t.Context(), late); err != nil || !w.on() {
			t.Errorf("an answer after 1.9 s: %v, on: %v", err, w.on())
		}
	})
}

func TestKeepAliveTellsOfTheReturn(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	var asked atomic.Int32
	returned, over := make(chan struct{}, 8), make(chan error, 1)
	probe := func(context.Context) error {
		if asked.Add(1) == 1 {
			return nil
		}
		// It hangs for longer than the switch holds.
		w.clock.pass(4 * time.Second)
		return nil
	}
	go func() { over <- w.e.KeepAlive(ctx, probe, func() { returned <- struct{}{} }) }()
	select {
	case <-returned:
	case <-time.After(time.Minute):
		t.Error("nobody is told that interception had ended meanwhile")
	}
	if !w.on() {
		t.Error("interception is not on")
	}
	cancel()
	if err := <-over; err != nil || !w.on() {
		t.Errorf("after the last beat: %v, on: %v", err, w.on())
	}
	if err := w.e.Disable(context.Background()); err != nil || w.on() {
		t.Errorf("at rest: %v, on: %v", err, w.on())
	}
}
