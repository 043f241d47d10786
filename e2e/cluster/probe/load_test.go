package probe

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestLoadArgsRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		want := Load{
			Rate: 1 + r.IntN(10000), Length: time.Duration(r.Int64N(int64(time.Hour))), Sockets: r.IntN(9),
			Timeout: time.Duration(r.Int64N(int64(time.Minute))), Names: []string{"example.org", "n#.test"}[:1+r.IntN(2)],
		}
		if r.IntN(2) == 0 {
			want.Server = "192.0.2.53"
		}
		got, err := ParseLoad(want.Args())
		fatal.If(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func TestBadLoads(t *testing.T) {
	for _, args := range [][]string{{}, {"-rate=0", "example.org"}, {"-rate=ten", "example.org"}, {"-sockets=-1", "example.org"}, {"-rate=5"}} {
		if l, err := ParseLoad(args); err == nil {
			t.Errorf("%v became %+v", args, l)
		}
	}
}

func TestLoadCounts(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	at := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		asked[q.Question[0].Name]++
		mu.Unlock()
		r := new(dns.Msg).SetReply(q)
		switch q.Question[0].Name {
		case "fail.test.":
			r.Rcode = dns.RcodeServerFailure
		case "silent.test.":
			return
		case "no.test.":
			r.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(r)
	})
	for _, sockets := range []int{0, 1, 3} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		l := Load{Rate: 400, Length: 200 * time.Millisecond, Sockets: sockets, Timeout: 2 * time.Second, Server: at,
			Names: []string{"good.test", "no.test", "fail.test", "silent.test"}}
		got, err := l.Run(t.Context())
		fatal.If(t, err)
		if got.Sent != 80 || got.Answered != 40 || got.Failed["SERVFAIL"] != 20 || got.Failed["timeout"] != 20 || got.Lost() != 40 {
			t.Errorf("%d sockets: %+v, want 80 sent, 40 answered, 20 failed and 20 late", sockets, got)
		}
		if got.Max <= 0 || got.P50 > got.P99 || got.LastFailure < got.FirstFailure || got.FirstFailure == 0 {
			t.Errorf("%d sockets: the figures do not fit: %+v", sockets, got)
		}
		mu.Lock()
		if len(asked) != 4 || asked["good.test."] != 20 {
			t.Errorf("%d sockets: the resolver was asked %v", sockets, asked)
		}
		mu.Unlock()
	}
}

func TestLoadNumbersItsNames(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	at := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		asked[q.Question[0].Name] = true
		mu.Unlock()
		_ = w.WriteMsg(new(dns.Msg).SetReply(q))
	})
	l := Load{Rate: 500, Length: 100 * time.Millisecond, Sockets: 1, Server: at, Names: []string{"n#.test"}}
	if _, err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 50 || !asked["n0.test."] || !asked["n49.test."] {
		t.Errorf("%d names were asked for, want n0.test to n49.test", len(asked))
	}
}

func TestLoadWithoutAResolver(t *testing.T) {
	s := serve(t)
	at := "127.0.0.1:" + strconv.Itoa(s.Port)
	s.Close()
	for _, sockets := range []int{0, 1} {
		l := Load{Rate: 100, Length: 100 * time.Millisecond, Sockets: sockets, Timeout: 100 * time.Millisecond, Server: at, Names: []string{"example.org"}}
		got, err := l.Run(t.Context())
		fatal.If(t, err)
		if got.Sent != 10 || got.Answered != 0 || got.Lost() != 10 {
			t.Errorf("%d sockets: %+v, want 10 lost", sockets, got)
		}
	}
}
