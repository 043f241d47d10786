package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Plan is what is asked when.
type Plan struct {
	// Rate is the questions a second, Count how many there are.
	Rate, Count int
	// Name is the name of the n-th question.
	Name func(n int) string
	// Delay moves the whole schedule, so that two plans can take turns.
	Delay time.Duration
	// Patience is after how long a question counts as lost. Rate times Patience is
	// below 65536: ids tell the answers apart.
	Patience time.Duration
}

// Result is what became of the questions.
type Result struct {
	Sent int
	// Lost got no answer, Bad one that is not NOERROR.
	Lost, Bad int
	// Latencies are those of the good answers in µs, ascending.
	Latencies []float64
	// Worst is when the question with the longest latency was due, since the start.
	Worst time.Duration
}

// ids is how many questions can be told apart.
const ids = 1 << 16

// run is one plan under way. A question's slot is written by the receiver of the
// socket that it was sent on, alone.
type run struct {
	Plan
	interval time.Duration
	start    time.Time
	sent     atomic.Int64
	over     atomic.Bool
	answered atomic.Int64
	slots    []slot
}

type slot struct {
	after time.Duration // since start; zero: no answer
	rcode byte
}

// Run carries a plan out over UDP sockets, which it closes; they take turns.
func Run(ctx context.Context, conns []net.Conn, p Plan) (Result, error) {
	files, err := blocking(conns)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return Result{}, err
	}
	if p.Rate < 1 || p.Count < 1 || p.Patience <= 0 || float64(p.Rate)*p.Patience.Seconds() >= ids {
		return Result{}, fmt.Errorf("a plan of %d questions at %d a second with a patience of %s cannot be carried out", p.Count, p.Rate, p.Patience)
	}
	r := &run{Plan: p, interval: time.Second / time.Duration(p.Rate), slots: make([]slot, p.Count), start: time.Now().Add(p.Delay)}
	var receivers sync.WaitGroup
	for i, f := range files {
		receivers.Go(func() { r.receive(int(f.Fd()), i, len(files)) })
	}
	err = r.send(ctx, files)
	r.wait()
	r.over.Store(true)
	receivers.Wait()
	return r.result(), err
}

// pollEvery bounds how long a receiver sleeps when nothing comes.
const pollEvery = 50 * time.Millisecond

// blocking returns the sockets out of the reach of Go's poller: a thread that
// sleeps in the kernel for an answer wakes sooner than a goroutine.
func blocking(conns []net.Conn) (files []*os.File, err error) {
	for _, c := range conns {
		u, ok := c.(*net.UDPConn)
		if !ok {
			return files, errors.New("a socket to measure with is not UDP")
		}
		f, fileErr := u.File()
		if err = errors.Join(err, fileErr, c.Close()); fileErr != nil {
			continue
		}
		files = append(files, f)
		fd := int(f.Fd()) // makes it blocking
		limit := unix.NsecToTimeval(pollEvery.Nanoseconds())
		err = errors.Join(err, unix.SetNonblock(fd, false), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20))
	}
	if err != nil {
		return files, fmt.Errorf("prepare sockets: %w", err)
	}
	return files, nil
}

// due is when the n-th question is to be sent, since start.
func (r *run) due(n int) time.Duration { return time.Duration(n) * r.interval }

func (r *run) send(ctx context.Context, files []*os.File) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel may wake a thread 50 µs late, unless it says otherwise; zero is
	// the default again.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()
	buf := make([]byte, 0, 512)
	for n := range r.Count {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		buf = Query(buf[:0], uint16(n), r.Name(n))
		sleepUntil(r.start.Add(r.due(n)))
		r.sent.Store(int64(n) + 1)
		// A refusal that an earlier question met is reported by this write; the
		// question counts as lost.
		_, _ = unix.Write(int(files[n%len(files)].Fd()), buf)
	}
	return nil
}

func sleepUntil(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil) // after a signal it goes on
	}
}

// receive records the answers of one of several sockets.
func (r *run) receive(fd, socket, sockets int) {
	buf := make([]byte, 4096)
	for !r.over.Load() {
		n, err := unix.Read(fd, buf)
		now := time.Since(r.start)
		if err != nil || n <= 0 {
			continue // nothing came in time, or a refusal did
		}
		if id, rcode, ok := reply(buf[:n]); ok {
			r.record(id, rcode, now, socket, sockets)
		}
	}
}

func (r *run) record(id uint16, rcode byte, now time.Duration, socket, sockets int) {
	n := question(id, int(r.sent.Load()))
	if n < 0 || n%sockets != socket || r.slots[n].after != 0 || now-r.due(n) > r.Patience {
		return
	}
	r.slots[n] = slot{max(now, 1), rcode}
	r.answered.Add(1)
}

// question returns which of the questions sent so far has an id: the latest. It is
// negative if none has.
func question(id uint16, sent int) int {
	last := sent - 1
	return last - (last-int(id))&(ids-1)
}

// wait waits until every question is answered or lost.
func (r *run) wait() {
	for until := time.Now().Add(r.Patience); r.answered.Load() < r.sent.Load() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

func (r *run) result() Result {
	out := Result{Sent: int(r.sent.Load())}
	longest := time.Duration(-1)
	for n, s := range r.slots[:out.Sent] {
		switch {
		case s.after == 0:
			out.Lost++
		case s.rcode != 0:
			out.Bad++
		default:
			took := s.after - r.due(n)
			out.Latencies = append(out.Latencies, float64(took.Nanoseconds())/1e3)
			if took > longest {
				longest, out.Worst = took, r.due(n)
			}
		}
	}
	slices.Sort(out.Latencies)
	return out
}
