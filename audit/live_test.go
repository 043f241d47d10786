package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// next takes a follower's next lines, which must arrive soon.
func next(t *testing.T, f *Follower) (lines []byte, lost uint64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return f.Next(ctx)
}

// of is a record whose pod has the name.
func of(t testing.TB, pod string) Record {
	r := example(t)
	r.Pod.Name = pod
	return r
}

func TestFollowerReadsNewLines(t *testing.T) {
	l := To(io.Discard, Options{Node: "node-1"})
	before := of(t, "before")
	l.Write(before)
	for l.Written() == 0 {
		time.Sleep(time.Millisecond)
	}
	f, g := l.Follow(), l.Follow()
	defer g.Close()
	after, flow := of(t, "after"), exampleFlow(t)
	l.Write(after)
	l.WriteFlow(flow)
	want := appendFlow(appendRecord(nil, "node-1", &after), nodeField("node-1"), flow)
	for _, f := range []*Follower{f, g} {
		var got []byte
		for len(got) < len(want) {
			lines, lost, err := next(t, f)
			if err != nil || lost > 0 {
				t.Fatal(lost, err)
			}
			got = append(got, lines...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("followed\n%swant\n%s", got, want)
		}
	}
	f.Close()
	f.Close()
	if _, _, err := next(t, f); !errors.Is(err, io.EOF) {
		t.Errorf("after its close: %v", err)
	}
	l.Write(after)
	if lines, _, err := next(t, g); err != nil || !bytes.Equal(lines, appendRecord(nil, "node-1", &after)) {
		t.Errorf("the other follower sees %s, %v", lines, err)
	}
	if all := append(appendRecord(nil, "node-1", &before), want...); !bytes.HasPrefix(l.Recent(), all) {
		t.Errorf("recent are\n%s", l.Recent())
	}
	closeLog(t, l)
}

func TestFollowerEndsWithTheLog(t *testing.T) {
	l := To(io.Discard, Options{})
	f := l.Follow()
	l.Write(example(t))
	closeLog(t, l)
	if lines, _, err := next(t, f); err != nil || bytes.Count(lines, []byte("\n")) != 1 {
		t.Errorf("the last line: %q, %v", lines, err)
	}
	if lines, _, err := next(t, f); !errors.Is(err, io.EOF) || lines != nil {
		t.Errorf("behind it: %q, %v", lines, err)
	}
	late := l.Follow()
	if _, _, err := next(t, late); !errors.Is(err, io.EOF) {
		t.Errorf("of a closed log: %v", err)
	}
	late.Close()
}

func TestFollowerStopsWaiting(t *testing.T) {
	l := To(io.Discard, Options{})
	f := l.Follow()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if lines, _, err := f.Next(ctx); !errors.Is(err, context.Canceled) || lines != nil {
		t.Errorf("%q, %v", lines, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := f.Next(context.Background())
		ended <- err
	}()
	f.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits on")
	}
	closeLog(t, l)
}

// TestSlowFollowerLosesLines: it gets complete lines in their order, and the number of
// lost ones; the log writes every line.
func TestSlowFollowerLosesLines(t *testing.T) {
	const n = 5000 // some 3 MiB
	l := To(io.Discard, Options{Queue: n})
	f := l.Follow()
	defer f.Close()
	for i := range n {
		l.Write(of(t, fmt.Sprint(i)))
	}
	for l.Written() < n {
		time.Sleep(time.Millisecond) // the follower reads nothing
	}
	lines, lost, err := next(t, f)
	if err != nil || len(lines) > followBytes || len(lines) < followBytes-2*batchBytes {
		t.Fatalf("%d bytes, %v", len(lines), err)
	}
	got := 0
	for line := range bytes.Lines(lines) {
		if parsed, err := ParseLine(line); err != nil || parsed.Pod.Name != fmt.Sprint(got) {
			t.Fatalf("line %d is %q: %v", got, line, err)
		}
		got++
	}
	if lost == 0 || uint64(got)+lost != n || l.Dropped() != 0 {
		t.Errorf("%d lines, %d lost of %d, %d dropped", got, lost, n, l.Dropped())
	}
	l.Write(of(t, "new"))
	if lines, lost, err = next(t, f); err != nil || lost != 0 || bytes.Count(lines, []byte("\n")) != 1 {
		t.Errorf("it does not go on: %q, %d, %v", lines, lost, err)
	}
	closeLog(t, l)
}

// TestFollowersWhileItIsWritten: followers that come and go see each line of their time
// once and in order, or count it as lost.
func TestFollowersWhileItIsWritten(t *testing.T) {
	l := To(io.Discard, Options{Queue: 1 << 20})
	var writing, following sync.WaitGroup
	stop := make(chan struct{})
	writing.Go(func() {
		for i := range 6000 {
			l.Write(of(t, fmt.Sprint(i)))
		}
	})
	for range 3 {
		following.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				f := l.Follow()
				at := -1
				for range 5 {
					lines, lost, err := f.Next(context.Background())
					if err != nil {
						break
					}
					for line := range bytes.Lines(lines) {
						var i int
						parsed, err := ParseLine(line)
						if _, scan := fmt.Sscan(parsed.Pod.Name, &i); err != nil || scan != nil || at >= 0 && i != at+1 {
							t.Errorf("%d comes after %d: %v", i, at, err)
						}
						at = i
					}
					if lost > 0 {
						at = -1
					}
					l.Recent()
				}
				f.Close()
			}
		})
	}
	writing.Wait()
	close(stop)
	closeLog(t, l)
	following.Wait()
	if len(l.live.followers) != 0 {
		t.Errorf("%d followers are left", len(l.live.followers))
	}
}

// TestRecentLikeAList: after any batches it is the end of all lines, whole ones, as
// many as there is room for but for a batch; and each batch is given back once, when
// it is needed no more.
func TestRecentLikeAList(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	var v live
	var all []byte
	out := map[*batch]bool{}
	for i := range 1200 {
		b := &batch{lines: make([]byte, 0, batchBytes)}
		most := []int{1, 20, 300}[i/400]
		for range 1 + r.IntN(most) {
			b.lines = append(b.lines, bytes.Repeat([]byte{'a' + byte(r.IntN(26))}, r.IntN(300))...)
			b.lines = append(b.lines, '\n')
		}
		if i < 800 && r.IntN(100) == 0 {
			b.lines = append(append(bytes.Repeat([]byte("long"), r.IntN(recentBytes/3)), '\n'), b.lines...)
		}
		out[b] = true
		all = append(all, b.lines...)
		for free := v.add(b, noon, 0); free != nil; {
			if !out[free] {
				t.Fatalf("after %d batches one is given back that was before", i)
			}
			delete(out, free)
			copy(free.lines, "overwritten by the next lines")
			free.next, free = nil, free.next
		}
		got := v.recent()
		if !bytes.HasSuffix(all, got) || len(got) > recentBytes {
			t.Fatalf("after %d batches it is not the end of the log", i)
		}
		if i > 900 && len(got) < recentBytes-2*batchBytes { // by then long ones are gone
			t.Fatalf("after %d batches there are %d bytes of %d", i, len(got), len(all))
		}
		if rest := all[:len(all)-len(got)]; len(rest) > 0 && rest[len(rest)-1] != '\n' {
			t.Fatalf("after %d batches it begins inside a line", i)
		}
		if len(out) > 2*recentBytes/batchBytes+2 {
			t.Fatalf("after %d batches %d are kept", i, len(out))
		}
		all = all[max(0, len(all)-4*recentBytes):]
	}
}

// TestNoLineBetweenRecentAndFollow: a follower that then reads the recent lines sees each
// line, also one that a stuck sink holds.
func TestNoLineBetweenRecentAndFollow(t *testing.T) {
	g := newGated()
	l := To(g, Options{})
	l.Write(of(t, "stuck"))
	g.next(t) // the sink has it, and does not come back
	f := l.Follow()
	if !bytes.Contains(l.Recent(), []byte(`"name":"stuck"`)) {
		t.Errorf("recent are %q", l.Recent())
	}
	l.Write(of(t, "later"))
	close(g.open)
	if lines, lost, err := next(t, f); err != nil || lost > 0 || !bytes.Contains(lines, []byte(`"name":"later"`)) || bytes.Contains(lines, []byte("stuck")) {
		t.Errorf("followed %q, %v", lines, err)
	}
	closeLog(t, l)
}

// TestFollowersReadLinesThatTheDiskLost: a follower sees the lines while the disk is
// full.
func TestFollowersReadLinesThatTheDiskLost(t *testing.T) {
	l := To(&failing{}, Options{})
	f := l.Follow()
	l.Write(example(t))
	if lines, _, err := next(t, f); err != nil || len(lines) == 0 {
		t.Errorf("%q, %v", lines, err)
	}
	closeLog(t, l)
	if l.Dropped() != 1 || len(l.Recent()) == 0 {
		t.Errorf("dropped %d, recent %q", l.Dropped(), l.Recent())
	}
}

// TestFollowingTakesNoMemory: a follower that keeps up, and the recent lines, take no
// further memory.
func TestFollowingTakesNoMemory(t *testing.T) {
	var v live
	f := v.follow()
	q := &queue{most: queueLength}
	line := []byte(strings.Repeat("a line of the log", 30) + "\n")
	round := func() {
		for range 120 {
			q.put(line)
		}
		b, _, _ := q.take()
		for free := v.add(b, noon, 0); free != nil; {
			b, free = free, free.next
			q.give(b)
		}
		if _, _, err := f.Next(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}
