package probe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// loadSockets share the questions of a Load in turn.
const loadSockets = 4

// Load is a constant rate of DNS questions, none of which is asked again.
type Load struct {
	// Rate is questions a second, Length how long.
	Rate   int
	Length time.Duration
	// Server is as in Lookup. Names are asked for in turn, for A records. A # in
	// a name stands for the number of the question.
	Server string
	Names  []string
}

// Loaded is what came of a Load.
type Loaded struct {
	Sent     int `json:"sent"`
	Answered int `json:"answered"`
	// Failed counts questions by kind: a Class, or an rcode that is neither
	// NOERROR nor NXDOMAIN.
	Failed map[string]int `json:"failed"`
	// Max is the longest latency of an answered question, in milliseconds.
	Max float64
	// FirstFailure and LastFailure are seconds since the begin; 0 without failures.
	FirstFailure, LastFailure float64
}

// Lost is how many questions had no useful answer.
func (l Loaded) Lost() int {
	n := 0
	for _, count := range l.Failed {
		n += count
	}
	return n
}

// Args are the words from which ParseLoad makes the load again.
func (l Load) Args() []string {
	return append([]string{
		"-rate=" + strconv.Itoa(l.Rate), "-length=" + l.Length.String(), "-server=" + l.Server,
	}, l.Names...)
}

// ParseLoad reads a load from the words of a command line.
func ParseLoad(args []string) (Load, error) {
	var l Load
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.IntVar(&l.Rate, "rate", 100, "questions a second")
	f.DurationVar(&l.Length, "length", 10*time.Second, "how long")
	f.StringVar(&l.Server, "server", "", "resolver")
	if err := f.Parse(args); err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	l.Names = f.Args()
	if len(l.Names) == 0 || l.Rate < 1 {
		return l, errors.New("load needs a rate and at least one name")
	}
	return l, nil
}

// Run asks, and returns when the last answer came or timed out.
func (l Load) Run(ctx context.Context) (Loaded, error) {
	server, err := Server(l.Server)
	if err != nil {
		return Loaded{}, err
	}
	t := &tally{begin: time.Now(), failed: map[string]int{}}
	var sockets []*socket
	for range loadSockets {
		c, err := net.Dial("udp", server)
		if err != nil {
			return Loaded{}, fmt.Errorf("open a socket to %s: %w", server, err)
		}
		s := &socket{conn: c, tally: t, open: map[uint16]time.Time{}, done: make(chan struct{})}
		go s.read()
		sockets = append(sockets, s)
	}
	t.sent = l.pace(ctx, func(i int) {
		name := strings.ReplaceAll(l.Names[i%len(l.Names)], "#", strconv.Itoa(i))
		m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
		sockets[i%loadSockets].ask(m)
	})
	for _, a := range sockets {
		a.finish()
	}
	return t.result(), nil
}

// pace calls f at the rate, counted from the begin so that a late call is made
// up for, and returns how often it did.
func (l Load) pace(ctx context.Context, f func(i int)) int {
	begin := time.Now()
	for i := 0; ; i++ {
		at := time.Duration(i) * time.Second / time.Duration(l.Rate)
		if at >= l.Length || ctx.Err() != nil {
			return i
		}
		time.Sleep(time.Until(begin.Add(at)))
		f(i)
	}
}

// socket asks its questions one after the other and reads the answers meanwhile.
type socket struct {
	conn  net.Conn
	tally *tally
	done  chan struct{}

	mu   sync.Mutex
	open map[uint16]time.Time
	id   uint16
}

func (s *socket) ask(m *dns.Msg) {
	s.mu.Lock()
	s.id++
	m.Id = s.id
	late := 0
	for id, since := range s.open {
		if time.Since(since) > dnsPatience {
			delete(s.open, id)
			late++
		}
	}
	s.open[m.Id] = time.Now()
	s.mu.Unlock()
	s.tally.fail(string(Timeout), late)
	wire, err := m.Pack()
	if err == nil {
		_, err = s.conn.Write(wire)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		// That is what became of an earlier question; this one is not out yet.
		_, err = s.conn.Write(wire)
	}
	if err != nil {
		s.close(m.Id)
		s.tally.fail(string(Classify(err)), 1)
	}
}

func (s *socket) close(id uint16) (since time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, ok = s.open[id]
	delete(s.open, id)
	return since, ok
}

// read takes answers until the socket's deadline. An ICMP error concerns some
// question that is open; that one becomes a timeout.
func (s *socket) read() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			if c := Classify(err); c == Refused || c == Prohibited || c == Unreachable {
				continue
			}
			return
		}
		var r dns.Msg
		if r.Unpack(buf[:n]) != nil {
			continue
		}
		if since, ok := s.close(r.Id); ok {
			s.tally.answer(r.Rcode, time.Since(since))
		}
	}
}

// finish waits until every question is answered or timed out.
func (s *socket) finish() {
	for end := time.Now().Add(dnsPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		left := len(s.open)
		s.mu.Unlock()
		if left == 0 {
			break
		}
	}
	s.conn.Close()
	<-s.done
	s.tally.fail(string(Timeout), len(s.open))
}

// tally counts outcomes.
type tally struct {
	begin time.Time
	sent  int

	mu          sync.Mutex
	answered    int
	longest     time.Duration
	failed      map[string]int
	first, last time.Duration
}

func (t *tally) answer(rcode int, took time.Duration) {
	if rcode != dns.RcodeSuccess && rcode != dns.RcodeNameError {
		t.fail(dns.RcodeToString[rcode], 1)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered, t.longest = t.answered+1, max(t.longest, took)
}

func (t *tally) fail(kind string, count int) {
	if count == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[kind] += count
	t.last = time.Since(t.begin)
	if t.first == 0 {
		t.first = t.last
	}
}

func (t *tally) result() Loaded {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Loaded{
		Sent: t.sent, Answered: t.answered, Failed: t.failed, Max: float64(t.longest.Microseconds()) / 1000,
		FirstFailure: t.first.Seconds(), LastFailure: t.last.Seconds(),
	}
}
