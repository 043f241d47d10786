package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func pattern(t testing.TB, s string) fqdn.Pattern {
	t.Helper()
	p, err := fqdn.ParsePattern(s)
	fatal.If(t, err)
	return p
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 250_000_000, time.UTC)

// example is the decision of docs/audit.md's first line.
func example(t testing.TB) Record {
	return Record{
		Time:     noon,
		Pod:      policy.PodRef{Namespace: "shop", Name: "cart-7d9f", UID: "0b6f3c1e-4f1f-4c70-9a37-2f9f2f8a6c11"},
		Workload: "app=cart,tier=front",
		Address:  netip.MustParseAddr("10.244.1.17"),
		Name:     policytest.Name("www.example.org"), Type: 1, Class: 1,
		Verdict: Allowed,
		Matches: []*policy.Match{{Rule: &policy.Rule{Policy: "shop/allow-out"}, Path: "spec.egress[0].matches[1]", Pattern: pattern(t, "*.example.org")}},
		Answers: []Answer{
			{Addr: netip.MustParseAddr("192.0.2.10"), Openings: []Opened{{Ports: "tcp/443", Until: noon.Add(6 * time.Minute)}}},
			{Addr: netip.MustParseAddr("169.254.169.254"), Blocked: "metadata"},
		},
		Chain:    []fqdn.Name{policytest.Name("edge.cdn.test")},
		Upstream: netip.MustParseAddrPort("10.96.0.10:53"),
		Latency:  1834 * time.Microsecond,
	}
}

func appendRecord(b []byte, node string, r *Record) []byte { return appendLine(b, nodeField(node), r) }

// TestStringsLikeEncodingJSON: the standard library reads every string back.
func TestStringsLikeEncodingJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		b := make([]byte, r.IntN(12))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		var got string
		text := appendString(nil, string(b))
		if err := json.Unmarshal(text, &got); err != nil || strings.ContainsAny(string(text), "\n\r") {
			t.Fatalf("%q became %s: %v", b, text, err)
		}
		if want := strings.ToValidUTF8(string(b), "\ufffd"); utf8.Valid(b) && got != want {
			t.Fatalf("%q became %q", b, got)
		}
	}
}

func TestEncodingTakesNoMemory(t *testing.T) {
	r, line := example(t), make([]byte, 0, 1024)
	p := (*Log)(nil).Prepare(&r)
	for what, f := range map[string]func(){
		"new":      func() { line = appendLine(line[:0], `","node":"node-1"`, &r) },
		"repeated": func() { line = p.appendLine(line[:0], `","node":"node-1"`, r.Time, r.Address, r.Latency) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// TestTimesLikeFormat: times are as the standard library writes them.
func TestTimesLikeFormat(t *testing.T) {
	const layout = "2006-01-02T15:04:05.000000Z"
	r := rand.New(rand.NewPCG(5, 6))
	check := func(at time.Time) {
		want := at.UTC().Format(layout)
		for range 2 { // the second time, the day is known
			if got := string(appendTime(nil, at)); got != want {
				t.Fatalf("%v is %q, want %q", at, got, want)
			}
		}
	}
	for range 20000 {
		at := time.Unix(r.Int64N(6e11)-2e11, r.Int64N(1e9)) // from before year 0 to beyond 9999
		check(at)
		check(at.In(time.FixedZone("east", 5*3600+45*60)))
	}
	for _, year := range []int{-1, 0, 1, 1969, 1970, 2000, 2024, 2100, 9999, 10000} {
		for _, month := range []time.Month{1, 2, 3, 12} {
			check(time.Date(year, month, 28, 23, 59, 59, 999_999_999, time.UTC))
			check(time.Date(year, month+1, 0, 0, 0, 0, 999, time.UTC))
		}
	}
}

// TestLongestLines: the policies of one namespace cannot make a line so long that the lines of others
// leave the memory of the log.
func TestLongestLines(t *testing.T) {
	pattern, err := fqdn.ParsePattern("**." + strings.Repeat(strings.Repeat("x", 60)+".", 4) + "test")
	fatal.If(t, err)
	var ports []string
	for i := range 64 {
		ports = append(ports, fmt.Sprintf("tcp/%d-%d,udp/%d-%d,sctp/%d-%d", 10001+2*i, 30001, 10001+2*i, 30001, 10001+2*i, 30001))
	}
	long := policy.PortSet(strings.Join(ports, ","))
	pod := policy.PodRef{Namespace: "shop", Name: "web"}
	r := Record{Time: noon, Pod: pod, Name: fqdn.Name("\x01a"), Verdict: Allowed}
	f := Flow{Time: noon, Last: noon, Pod: pod, Dialled: netip.MustParseAddrPort("192.0.2.1:443"), Count: 1}
	for i := range 16384 {
		id := fmt.Sprintf("shop/%s%d", strings.Repeat("p", 248), i)
		r.Matches = append(r.Matches, policy.NewMatch(&policy.Rule{Policy: id}, "spec.egress[63].matches[255]", pattern, i))
		f.Policies = append(f.Policies, id)
	}
	for range 128 {
		a := Answer{Addr: netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666")}
		for range 256 {
			a.Openings = append(a.Openings, Opened{Ports: long, Until: noon})
		}
		r.Answers = append(r.Answers, a)
	}
	var out bytes.Buffer
	l := To(&out, Options{Node: "node-1"})
	l.Write(Record{Time: noon, Pod: policy.PodRef{Namespace: "pay", Name: "till"}, Name: fqdn.Name("\x01b"), Verdict: Allowed})
	l.Write(r)
	l.WriteFlow(&f)
	fatal.If(t, l.Close(context.Background()))
	if recent := recent(l); !bytes.Contains(recent, []byte(`"namespace":"pay"`)) || bytes.Count(recent, []byte{'\n'}) != 3 {
		t.Errorf("%d bytes of lines: %d bytes are kept", out.Len(), len(recent))
	}
	var kept []Line
	fatal.If(t, Read(&out, func(line Line) error {
		kept = append(kept, line)
		return nil
	}, func(number int, err error) { t.Errorf("line %d: %v", number, err) }))
	if len(kept) != 3 || len(kept[1].Matches) != maxListed || len(kept[2].Policies) != maxListed || kept[1].Matches[0].Policy != r.Matches[0].Policy {
		t.Fatalf("%d lines", len(kept))
	}
	if a := kept[1].Answers; len(a) == 0 || !a[0].Granted || len(a[0].Grants) == 0 {
		t.Errorf("answers %+v", a)
	}
}
