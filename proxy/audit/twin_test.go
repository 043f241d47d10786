package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
)

// line is the schema as a reader would write it down.
type line struct {
	V        int           `json:"v"`
	Kind     string        `json:"kind"`
	Time     time.Time     `json:"time"`
	Node     string        `json:"node"`
	Verdict  string        `json:"verdict"`
	Would    string        `json:"would,omitempty"`
	Pod      linePod       `json:"pod"`
	Question lineQuestion  `json:"question"`
	Via      string        `json:"via,omitempty"`
	Matches  []lineMatch   `json:"matches,omitempty"`
	Answers  []lineAnswer  `json:"answers,omitempty"`
	Chain    []string      `json:"chain,omitempty"`
	Rcode    string        `json:"rcode"`
	Upstream string        `json:"upstream,omitempty"`
	Cache    string        `json:"cache,omitempty"`
	Latency  time.Duration `json:"latency_us"`
	Protocol string        `json:"protocol"`
	Error    string        `json:"error,omitempty"`
}

type linePod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	IP        string `json:"ip"`
}

type lineQuestion struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Class string `json:"class"`
}

type lineMatch struct {
	Policy string `json:"policy"`
	Path   string `json:"path"`
	Match  string `json:"match"`
	Audit  bool   `json:"audit,omitempty"`
}

type lineAnswer struct {
	Address string      `json:"address"`
	Granted bool        `json:"granted"`
	Grants  []lineGrant `json:"grants,omitempty"`
	Blocked string      `json:"blocked,omitempty"`
}

type lineGrant struct {
	Ports string    `json:"ports"`
	Until time.Time `json:"until"`
}

// named is a type, class or response code: its name, or RFC 3597's kind and number.
func named[N uint16 | int](names map[N]string, kind string, n N) string {
	if s, ok := names[n]; ok {
		return s
	}
	return fmt.Sprintf("%s%d", kind, n)
}

// lineOf is the encoder's twin: it fills the reader's structure.
func lineOf(node string, r Record) line {
	l := line{V: Version, Kind: "dns", Time: r.Time, Node: node, Verdict: r.Verdict.String(), Would: r.Would.String(),
		Pod:      linePod{r.Pod.Namespace, r.Pod.Name, r.Pod.UID, r.Address.String()},
		Question: lineQuestion{r.Name.String(), named(dns.TypeToString, "TYPE", r.Type), named(dns.ClassToString, "CLASS", r.Class)},
		Rcode:    named(dns.RcodeToString, "RCODE", r.Rcode), Cache: r.Cache.String(), Latency: r.Latency / time.Microsecond,
		Protocol: "udp", Error: r.Error}
	if r.TCP {
		l.Protocol = "tcp"
	}
	if r.Via != "" {
		l.Via = r.Via.String()
	}
	for _, m := range r.Matches {
		l.Matches = append(l.Matches, lineMatch{m.Policy, m.Path, m.Pattern.String(), m.Audit})
	}
	for _, a := range r.Answers {
		in := lineAnswer{Address: a.Addr.String(), Granted: len(a.Openings) > 0, Blocked: a.Blocked}
		for _, o := range a.Openings {
			in.Grants = append(in.Grants, lineGrant{string(o.Ports), o.Until})
		}
		l.Answers = append(l.Answers, in)
	}
	for _, n := range r.Chain {
		l.Chain = append(l.Chain, n.String())
	}
	if r.Upstream.IsValid() {
		l.Upstream = r.Upstream.String()
	}
	return l
}

func randomRecord(t testing.TB, r *rand.Rand) Record {
	some := func() bool { return r.IntN(2) == 0 }
	addr := func() netip.Addr {
		if some() {
			return netip.AddrFrom4([4]byte{192, 0, 2, byte(r.Uint32())})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(r.Uint32())})
	}
	rec := Record{
		Time: noon.Add(time.Duration(r.IntN(1e9)) * time.Microsecond),
		Pod:  policy.PodRef{Namespace: "shop", Name: fmt.Sprintf("pod-%d", r.IntN(99))}, Address: addr(),
		Name: name(t, fmt.Sprintf(`w%d.x\.y.test`, r.IntN(99))), Type: uint16(r.IntN(300)), Class: uint16(r.IntN(5)),
		Verdict: Verdict(1 + r.IntN(5)), Would: Verdict(r.IntN(5)), Rcode: r.IntN(24),
		Cache: Cache(r.IntN(4)), Latency: time.Duration(r.IntN(1e9)), TCP: some(),
	}
	if some() {
		rec.Rcode, rec.Class, rec.Type = 0, 1, 1+27*uint16(r.IntN(2)) // the frequent ones
	}
	if some() {
		rec.Via = name(t, `_https._tcp."y.test`)
	}
	if some() {
		rec.Pod.UID = "uid-1"
	}
	if some() {
		rec.Upstream = netip.AddrPortFrom(addr(), 53)
	}
	if some() {
		rec.Error = "it \"broke\"\tagain"
	}
	for range r.IntN(3) {
		rec.Matches = append(rec.Matches, &policy.Match{Policy: "shop/p", Path: "spec.egress[0].matches[0]", Pattern: pattern(t, "**.y.test"), Audit: some()})
		rec.Chain = append(rec.Chain, name(t, "edge.cdn.test"))
		a := Answer{Addr: addr()}
		for range r.IntN(3) {
			a.Openings = append(a.Openings, Opened{"tcp/443,udp/53", noon.Add(time.Duration(r.IntN(1e6)) * time.Millisecond)})
		}
		if len(a.Openings) == 0 {
			a.Blocked = "loopback"
		}
		rec.Answers = append(rec.Answers, a)
	}
	return rec
}

// TestEncodeLikeItsTwin: strict reading of random lines gives every field back.
func TestEncodeLikeItsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 3000 {
		rec := randomRecord(t, r)
		text := appendRecord(nil, "node-1", &rec)
		var got line
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if diff := cmp.Diff(lineOf("node-1", rec), got); diff != "" {
			t.Fatalf("%s\n%s", text, diff)
		}
	}
}

// TestRotationLosesNoLine: while many goroutines write and the file rotates, what
// was written is in the files, line by line, once each and in order.
func TestRotationLosesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const keep = 200
	l, err := Open(Options{Node: "node-1", Path: path, Size: 4096, Keep: keep, Queue: 10000})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 250
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rec := example(t)
			for i := range each {
				rec.Pod.Name = fmt.Sprintf("writer-%d", w)
				rec.Latency = time.Duration(i) * time.Microsecond
				l.Write(rec)
				if i%50 == 0 {
					l.Reopen()
				}
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	if l.Dropped() != 0 || l.Written() != writers*each {
		t.Fatalf("written %d, dropped %d", l.Written(), l.Dropped())
	}
	next := map[string]time.Duration{}
	files := 0
	for i := keep; i >= 0; i-- {
		p := path
		if i > 0 {
			p = fmt.Sprintf("%s.%d", path, i)
		}
		text, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		files++
		for row := range bytes.Lines(text) {
			var got line
			if err := json.Unmarshal(row, &got); err != nil {
				t.Fatalf("%s: %v in %q", p, err, row)
			}
			if got.Latency != next[got.Pod.Name] {
				t.Fatalf("%s: line %d of %s comes after %d", p, got.Latency, got.Pod.Name, next[got.Pod.Name]-1)
			}
			next[got.Pod.Name]++
		}
	}
	for w := range writers {
		if n := next[fmt.Sprintf("writer-%d", w)]; n != each {
			t.Errorf("writer %d: %d lines", w, n)
		}
	}
	if files < 2 {
		t.Errorf("%d files: it did not rotate", files)
	}
}

func FuzzString(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\"\\\x7f\xff\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		text := appendString(nil, s)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%q became %s: %v", s, text, err)
		}
		if bytes.ContainsAny(text, "\n\r") {
			t.Fatalf("%q breaks the line", s)
		}
	})
}
