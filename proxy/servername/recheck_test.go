package servername

import (
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestRecheck(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	waiting := l.dial()
	fatal.Await(t, "one waits", func() bool { return l.Stats().Hellos == 1 })
	l.Recheck()
	fatal.If(t, write(c, []byte("still")))
	expect(t, s, "still")
	l.judge.change(func(j *judge) { j.granted[podA] = []string{"also.test"} })
	l.Recheck()
	if !isReset(c) || !isReset(s) {
		t.Error("a half was not reset")
	}
	d := l.denial()
	diff.Equal(t, ReasonRevoked, d.Reason)
	diff.Equal(t, "good.test", d.ServerName)
	fatal.If(t, write(waiting, helloFor("also.test"))) // it waited, and is judged by its own name
	s = l.accepted()
	expect(t, s, string(helloFor("also.test")[:5]))
	l.judge.change(func(j *judge) { delete(j.pods, netip.MustParseAddr("127.0.1.1")) })
	l.Recheck() // the pod is gone
	if !isReset(waiting) || !isReset(s) {
		t.Error("a half was not reset")
	}
}

// TestRecheckUnread: a connection that is copied unread is judged too.
func TestRecheckUnread(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	l.judge.change(func(j *judge) { j.verdict = policy.AllowFlow })
	c := l.dial()
	s := l.accepted()
	fatal.If(t, write(c, []byte("x")))
	expect(t, s, "x")
	l.judge.change(func(j *judge) { j.verdict = policy.DenyFlow })
	l.Recheck()
	if !isReset(c) || !isReset(s) {
		t.Error("a half was not reset")
	}
}

// TestRecheckRace: no connection is open that the judge denied before Recheck began, whenever that is.
func TestRecheckRace(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	for i := range 200 {
		l.judge.change(func(j *judge) { j.granted[podA] = []string{"good.test"} })
		c := l.dial()
		fatal.If(t, write(c, helloFor("good.test")))
		time.Sleep(time.Duration(i) * 5 * time.Microsecond)
		l.judge.change(func(j *judge) { delete(j.granted, podA) })
		l.Recheck()
		if !isReset(c) {
			t.Fatal("the connection goes on")
		}
	}
}
