package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// next takes a follower's next lines, which must arrive soon.
func next(t *testing.T, f *Follower) (lines []byte, lost uint64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return f.Next(ctx)
}

// recent returns the last lines of a log.
func recent(l *Log) []byte {
	lines, f := l.Follow()
	f.Close()
	return lines
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
	fatal.Await(t, "the first line", func() bool { return l.Written() > 0 })
	_, f := l.Follow()
	_, g := l.Follow()
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
	if all := append(appendRecord(nil, "node-1", &before), want...); !bytes.HasPrefix(recent(l), all) {
		t.Errorf("recent are\n%s", recent(l))
	}
	closeLog(t, l)
}

func TestFollowerEndsWithTheLog(t *testing.T) {
	l := To(io.Discard, Options{})
	_, f := l.Follow()
	l.Write(example(t))
	closeLog(t, l)
	if lines, _, err := next(t, f); err != nil || bytes.Count(lines, []byte("\n")) != 1 {
		t.Errorf("the last line: %q, %v", lines, err)
	}
	if lines, _, err := next(t, f); !errors.Is(err, io.EOF) || lines != nil {
		t.Errorf("behind it: %q, %v", lines, err)
	}
	_, late := l.Follow()
	if _, _, err := next(t, late); !errors.Is(err, io.EOF) {
		t.Errorf("of a closed log: %v", err)
	}
	late.Close()
}

func TestFollowerStopsWaiting(t *testing.T) {
	l := To(io.Discard, Options{})
	_, f := l.Follow()
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
		diff.Is(t, io.EOF, err)
	case <-time.After(time.Minute):
		t.Error("it waits on")
	}
	closeLog(t, l)
}

// TestSlowFollowerLosesLines: it gets complete lines in their order, and the number of
// lost ones; the log writes every line.
func TestSlowFollowerLosesLines(t *testing.T) {
	const n = 5000 // some 3 MiB
	l := To(io.Discard, Options{Queue: 1 << 30})
	_, f := l.Follow()
	defer f.Close()
	for i := range n {
		l.Write(of(t, fmt.Sprint(i)))
	}
	fatal.Await(t, "all lines, while the follower reads nothing", func() bool { return l.Written() == n })
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

// TestFollowersWhileItIsWritten: followers that come and go see each line after the recent ones
// once and in order, or count it as lost.
func TestFollowersWhileItIsWritten(t *testing.T) {
	l := To(io.Discard, Options{Queue: 1 << 30})
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
				lines, f := l.Follow()
				at := -1
				for line := range bytes.Lines(lines) {
					parsed, err := ParseLine(line)
					if _, scan := fmt.Sscan(parsed.Pod.Name, &at); err != nil || scan != nil {
						t.Errorf("%v, %v", err, scan)
					}
				}
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
				}
				f.Close()
			}
		})
	}
	writing.Wait()
	close(stop)
	closeLog(t, l)
	following.Wait()
	diff.Equal(t, 0, len(l.live.followers), "followers left")
}

// TestKeptLinesLikeAList: after any lines of any subjects, the kept lines are the last ones of each
// subject in the order of all, as many as the subject has room for.
func TestKeptLinesLikeAList(t *testing.T) {
	type line struct {
		of   policy.PodRef
		text []byte
	}
	r := rand.New(rand.NewPCG(17, 18))
	k, all := newKeptLines(), []line(nil)
	held, total := map[policy.PodRef]int{}, 0
	for i := range 4000 {
		of := policytest.Ref(string(rune('a' + min(r.IntN(1+i/100), r.IntN(26)))))
		var lines []byte
		for range 1 + r.IntN(3) {
			text := append(bytes.Repeat([]byte{'a' + byte(r.IntN(26))}, r.IntN(2000)), '\n')
			lines = append(lines, text...)
			for held[of] > 0 && keptBytes.Room(held[of], total) < len(text) {
				first := slices.IndexFunc(all, func(l line) bool { return l.of == of })
				held[of], total = held[of]-len(all[first].text), total-len(all[first].text)
				all = slices.Delete(all, first, first+1)
			}
			all = append(all, line{of, text})
			held[of], total = held[of]+len(text), total+len(text)
		}
		k.add(unique.Make(of), lines, noon, &coverage{})
		if i%50 > 0 {
			continue
		}
		var want []byte
		for _, l := range all {
			want = append(want, l.text...)
		}
		if !bytes.Equal(k.all(), want) {
			t.Fatalf("after %d batches other lines are kept", i)
		}
	}
	if total < keptBytes.All/2 {
		t.Errorf("%d bytes are kept", total)
	}
}

// TestOneSubjectLeavesTheOthersTheirLines: a subject with ever more lines ends its own.
func TestOneSubjectLeavesTheOthersTheirLines(t *testing.T) {
	k, c := newKeptLines(), coverage{from: noon}
	calm, loud := policytest.Ref("calm"), policy.PodRef{Namespace: "bank", Name: "loud"}
	k.add(unique.Make(calm), []byte("a line of a calm pod\n"), noon, &c)
	line := append(bytes.Repeat([]byte("x"), 499), '\n')
	for i := range 10000 {
		k.add(unique.Make(loud), line, noon.Add(time.Duration(i)*time.Second), &c)
	}
	for i := range 100 { // each finds room beside it
		k.add(unique.Make(policytest.Ref(fmt.Sprint(i))), line, noon, &c)
	}
	if all := k.all(); !bytes.HasPrefix(all, []byte("a line of a calm pod\n")) || len(all) < keptBytes.Each || len(all) > keptBytes.All {
		t.Errorf("%d bytes are kept, from %.20q on", len(all), all)
	}
	diff.Equal(t, noon, c.since(calm.Namespace), "lines of the calm namespace are complete since")
	if kept := keptBytes.Each / 500; c.since("bank") != noon.Add(time.Duration(10000-kept-1)*time.Second) {
		t.Errorf("lines of the loud namespace are complete since %v", c.since("bank"))
	}
}

// TestSubjectsThatAreGone: the lines of subjects without a new line for longest go.
func TestSubjectsThatAreGone(t *testing.T) {
	k, c := newKeptLines(), coverage{from: noon}
	for i := range keptSubjects + 10 {
		k.add(unique.Make(policytest.Ref(fmt.Sprint(i))), []byte(fmt.Sprintf("%d\n", i)), noon.Add(time.Duration(i)), &c)
	}
	all := k.all()
	if n := bytes.Count(all, []byte("\n")); n != keptSubjects || !bytes.HasPrefix(all, []byte("10\n")) || k.bytes != len(all) {
		t.Errorf("%d lines are kept, from %.10q on", n, all)
	}
	diff.Equal(t, noon.Add(9), c.since(policytest.Ref("0").Namespace), "complete since")
}

// TestNoLineBetweenRecentAndFollow: each line is in the recent lines or comes after them, also one that a stuck sink
// holds.
func TestNoLineBetweenRecentAndFollow(t *testing.T) {
	g := newGated()
	l := To(g, Options{})
	l.Write(of(t, "stuck"))
	g.next(t) // the sink has it, and does not come back
	last, f := l.Follow()
	if !bytes.Contains(last, []byte(`"name":"stuck"`)) {
		t.Errorf("recent are %q", last)
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
	_, f := l.Follow()
	l.Write(example(t))
	if lines, _, err := next(t, f); err != nil || len(lines) == 0 {
		t.Errorf("%q, %v", lines, err)
	}
	closeLog(t, l)
	if l.Dropped() != 1 || len(recent(l)) == 0 {
		t.Errorf("dropped %d, recent %q", l.Dropped(), recent(l))
	}
}

// TestFollowingTakesNoMemory: a follower that keeps up, and the recent lines, take no
// further memory.
func TestFollowingTakesNoMemory(t *testing.T) {
	v, q, pod := newLive(), newQueue(queueBytes), policytest.Ref("a")
	_, f := v.follow()
	line := []byte(strings.Repeat("a line of the log", 30) + "\n")
	round := func() {
		for range 120 {
			q.put(unique.Make(pod), line)
		}
		b, _, _ := q.take()
		v.add(b, noon, nil)
		q.give(b)
		if _, _, err := f.Next(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for range 80 {
		round()
	}
	diff.Equal(t, 0, testing.AllocsPerRun(100, round), "allocations a batch")
}
