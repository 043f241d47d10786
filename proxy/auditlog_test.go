package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// wantRecord tells whether a record says whose workload asked, and the TTLs.
func wantRecord(t *testing.T, what string, r audit.Record, workload string, ttls ...uint32) {
	t.Helper()
	if r.Workload != workload || len(r.Answers) != len(ttls) {
		t.Errorf("%s: workload %q, answers %+v", what, r.Workload, r.Answers)
		return
	}
	for i, a := range r.Answers {
		diff.Equal(t, ttls[i], a.TTL, what, "the TTL of", a.Addr)
	}
}

// TestRecordsSayWorkloadAndTTL: without the packet cache, for every verdict.
func TestRecordsSayWorkloadAndTTL(t *testing.T) {
	l := newLab(t, map[string][]string{
		"www.example.org A": {"www.example.org. 30 IN CNAME edge.test.", "edge.test. 60 IN A 192.0.2.1", "edge.test. 7 IN A 192.0.2.2", "edge.test. 60 IN A 169.254.169.254"},
		"other.test A":      {"other.test. 90 IN A 192.0.2.3"},
	})
	for _, c := range []struct {
		pod, name string
		workload  string
		ttls      []uint32
	}{
		{"10.1.0.2", "www.example.org", "app=web", []uint32{30, 7, 30}},
		{"10.1.0.2", "other.test", "app=web", []uint32{90}},
		{"10.1.0.3", "other.test", "app=quiet", nil},
		{"10.1.0.5", "www.example.org", "app=watched", []uint32{30, 7, 30}},
	} {
		l.ask(c.pod, c.name, dns.TypeA)
		wantRecord(t, c.pod+" "+c.name, l.log.last(t), c.workload, c.ttls...)
	}
}

// TestRecordsOfForwardedQueries: of addresses with one TTL, and with several.
func TestRecordsOfForwardedQueries(t *testing.T) {
	l := newSocketLab(t, false)
	l.asks(configWith(t), nil, startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		n := q.Question[0].Name
		if n[0] == 'm' {
			return [][]byte{says(q, nil, n+" 60 IN A 192.0.2.1", n+" 30 IN A 192.0.2.2")}
		}
		return [][]byte{says(q, nil, n+" 60 IN A 192.0.2.1", n+" 60 IN A 192.0.2.2")}
	}))
	conn := client(t, "udp", "127.0.0.2", l.listen())
	for _, c := range []struct {
		name string
		ttls []uint32
	}{{"one.example.org", []uint32{60, 60}}, {"mixed.example.org", []uint32{60, 30}}} {
		exchange(t, conn, newQuery(c.name, dns.TypeA))
		fatal.Await(t, "the record", func() bool { return len(l.log.of(policytest.Name(c.name))) == 1 })
		wantRecord(t, c.name, l.log.of(policytest.Name(c.name))[0], "app=web", c.ttls...)
	}
}

// stuckWriter blocks, like a standard output that is not read.
type stuckWriter chan struct{}

func (w stuckWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}

func closeLog(t *testing.T, log *audit.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fatal.If(t, log.Close(ctx))
}

// TestStuckLogCostsNoQuery: while the log's sink is stuck and a follower does not read,
// each query is answered immediately; lost lines are counted.
func TestStuckLogCostsNoQuery(t *testing.T) {
	l := newSocketLab(t, false)
	stuck := make(stuckWriter)
	log := audit.To(stuck, audit.Options{Queue: 16 << 10})
	log.Follow()
	l.s.log = log
	l.asks(configWith(t, "cache"), nil, startScript(t, one("192.0.2.1")))
	conn := client(t, "udp", "127.0.0.2", l.listen())
	const queries = 300
	slowest := time.Duration(0)
	for i := range queries {
		n := "same.example.org"
		if i%3 == 0 {
			n = "new" + itoa(i) + ".example.org"
		}
		began := time.Now()
		if r := exchange(t, conn, newQuery(n, dns.TypeA)); len(r.Answer) != 1 {
			t.Fatalf("query %d: %v", i, r)
		}
		slowest = max(slowest, time.Since(began))
	}
	if slowest > 30*time.Second {
		t.Errorf("the slowest took %v", slowest)
	}
	l.settled()
	// The writer holds one batch, and as many lines wait as may.
	if n := log.Dropped(); n < queries-2*16 || n >= queries {
		t.Errorf("%d of %d lines are counted as lost", n, queries)
	}
	close(stuck)
	closeLog(t, log)
	if log.Written()+log.Dropped() != queries {
		t.Errorf("%d written, %d lost of %d", log.Written(), log.Dropped(), queries)
	}
}

// TestFilterOfTheLog: a filter treats a cached answer's line like the first one.
func TestFilterOfTheLog(t *testing.T) {
	l := newSocketLab(t, false)
	var out bytes.Buffer
	log := audit.To(&out, audit.Options{Filter: audit.Filter{Sample: 10}})
	l.s.log = log
	l.asks(configWith(t, "cache"), nil, startScript(t, one("192.0.2.1")))
	conn := client(t, "udp", "127.0.0.2", l.listen())
	ask := func(times int, n string) {
		for range times {
			exchange(t, conn, newQuery(n, dns.TypeA))
		}
		l.settled()
	}
	ask(100, "www.example.org")
	log.Filter(audit.Filter{Verdicts: []string{"unmatched"}})
	ask(20, "www.example.org")
	ask(5, "other.test")
	closeLog(t, log)
	got := map[string]int{}
	for row := range bytes.Lines(out.Bytes()) {
		var line audit.Line
		fatal.If(t, json.Unmarshal(row, &line))
		got[line.Verdict+" "+line.Question.Name]++
	}
	if len(got) != 2 || got["allowed www.example.org"] != 10 || got["unmatched other.test"] != 5 || log.Filtered() != 110 {
		t.Errorf("logged %v, filtered %d", got, log.Filtered())
	}
}
