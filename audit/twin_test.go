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

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/audittest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// named is a type, class or response code: its name, or RFC 3597's kind and number.
func named[N uint16 | int](names map[N]string, kind string, n N) string {
	if s, ok := names[n]; ok {
		return s
	}
	return fmt.Sprintf("%s%d", kind, n)
}

// lineOf is the encoder's twin: it fills the reader's structure.
func lineOf(node string, r Record) Line {
	l := Line{V: Version, Kind: KindDNS, Time: r.Time, Node: node, Verdict: r.Verdict.String(), Would: r.Would.String(),
		Pod:      linePod(r.Pod, r.Workload, r.Address),
		Host:     lineHost(r.Pod, Owner{}, r.Address),
		Question: &LineQuestion{r.Name.String(), named(dns.TypeToString, "TYPE", r.Type), named(dns.ClassToString, "CLASS", r.Class)},
		Rcode:    named(dns.RcodeToString, "RCODE", r.Rcode), Cache: r.Cache.String(), LatencyUS: r.Latency.Microseconds(),
		Protocol: "udp", Error: r.Error, Renewed: r.Renewed, Limit: r.Limit.String()}
	if r.TCP {
		l.Protocol = "tcp"
	}
	if r.Via != "" {
		l.Via = r.Via.String()
	}
	if r.Rule != nil {
		l.Tier, l.Policy, l.Rule = r.Rule.Tier.String(), r.Rule.Policy, r.Rule.Name
		if l.Rule == "" {
			l.Rule = r.Rule.Path
		}
	}
	for _, m := range r.Matches {
		l.Matches = append(l.Matches, LineMatch{m.Policy, m.Path, m.Pattern.String(), m.Audit})
	}
	for _, a := range r.Answers {
		in := LineAnswer{Address: a.Addr.String(), Granted: len(a.Openings) > 0, Blocked: a.Blocked}
		for _, o := range a.Openings {
			in.Grants = append(in.Grants, LineGrant{string(o.Ports), o.Until})
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

// flowLineOf is lineOf for flows.
func flowLineOf(node string, f *Flow) Line {
	l := Line{V: Version, Kind: KindFlow, Time: f.Time, Node: node, Verdict: f.Verdict.String(),
		Pod:         linePod(f.Pod, f.Workload, f.Address),
		Host:        lineHost(f.Pod, f.Owner, f.Address),
		Protocol:    map[policy.Protocol]string{6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "ipv6-icmp"}[f.Protocol],
		Destination: &LineDestination{f.Dialled.Addr().String(), f.Dialled.Port()},
		Direction:   "egress", Reason: f.Reason, Policies: f.Policies, Count: f.Count}
	if f.Source.IsValid() {
		l.Direction, l.Source = "ingress", &LineSource{Address: f.Source.String()}
		if f.SourcePod != (policy.PodRef{}) {
			l.Source.Pod = f.SourcePod.String()
		}
	}
	if l.Protocol == "" {
		l.Protocol = fmt.Sprint(uint8(f.Protocol))
	}
	if f.Count > 1 {
		l.Last = f.Last
	}
	for _, n := range f.Names {
		name := LineName{Name: n.Name.String(), Asked: n.Asked}
		if n.Pod != (policy.PodRef{}) {
			name.Pod = n.Pod.String()
		}
		if m := n.Match; m != nil {
			name.Match = &LineMatch{m.Policy, m.Path, m.Pattern.String(), m.Audit}
		}
		l.Names = append(l.Names, name)
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
		Name: policytest.Name(fmt.Sprintf(`w%d.x\.y.test`, r.IntN(99))), Type: uint16(r.IntN(300)), Class: uint16(r.IntN(5)),
		Verdict: Verdict(1 + r.IntN(7)), Would: Verdict(r.IntN(7)), Rcode: r.IntN(24),
		Cache: Cache(r.IntN(4)), Latency: time.Duration(r.IntN(1e9)), TCP: some(),
	}
	if rec.Verdict == NameDenied || rec.Would == NameDenied {
		rec.Rule = &policy.Rule{Tier: []policy.Tier{policy.Admin, policy.Baseline}[r.IntN(2)], Policy: "no-\"paste\"", Path: "spec.egress[1]", Name: []string{"", "paste sites"}[r.IntN(2)]}
	}
	if rec.Verdict == Refused {
		rec.Limit = policy.Limit(r.IntN(5))
	}
	if rec.Verdict == Renewed {
		rec.Renewed = []string{ByAnswer, ByConnection, Unanswered}[r.IntN(3)]
	}
	if some() {
		rec.Rcode, rec.Class, rec.Type = 0, 1, 1+27*uint16(r.IntN(2)) // the frequent ones
	}
	if some() {
		rec.Via = policytest.Name(`_https._tcp."y.test`)
	}
	if some() {
		rec.Pod.UID = "uid-1"
	}
	if some() {
		rec.Workload = `app=web,note="odd"`
	}
	if some() {
		rec.Upstream = netip.AddrPortFrom(addr(), 53)
	}
	if some() {
		rec.Error = "it \"broke\"\tagain"
	}
	for range r.IntN(3) {
		rec.Matches = append(rec.Matches, &policy.Match{Rule: &policy.Rule{Policy: "shop/p", Audit: some()}, Path: "spec.egress[0].matches[0]", Pattern: pattern(t, "**.y.test")})
		rec.Chain = append(rec.Chain, policytest.Name("edge.cdn.test"))
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

func randomFlow(t testing.TB, r *rand.Rand) *Flow {
	some := func() bool { return r.IntN(2) == 0 }
	addr := func() netip.Addr {
		if some() {
			return netip.AddrFrom4([4]byte{198, 51, 100, byte(r.Uint32())})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(r.Uint32())})
	}
	moment := func() time.Time { return noon.Add(time.Duration(r.IntN(1e9)) * time.Microsecond) }
	f := &Flow{Time: moment(), Pod: policy.PodRef{Namespace: "shop", Name: fmt.Sprintf("pod-%d", r.IntN(99))}, Address: addr(),
		Verdict: FlowVerdict(r.IntN(2)), Protocol: policy.Protocol(r.IntN(256)), Dialled: netip.AddrPortFrom(addr(), uint16(r.IntN(3)*443)),
		Reason: ReasonAddress, Count: 1}
	if some() {
		f.Protocol = []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP, protocolICMP, protocolICMP6}[r.IntN(5)]
	}
	if some() {
		f.Pod.UID, f.Workload = "uid-1", "app=web"
	}
	if some() {
		f.Count, f.Last = 2+r.Uint64N(1e6), moment()
	}
	if r.IntN(4) == 0 {
		f.Pod, f.Workload, f.Owner = policy.NodeRef("n1"), "", Owner{Known: some(), UID: r.Uint32(), GID: r.Uint32()}
	} else if r.IntN(4) == 0 {
		f.Verdict, f.Source, f.Reason, f.Policies = Denied, addr(), ReasonIsolated, []string{"shop/closed"}
		if some() {
			f.SourcePod = policy.PodRef{Namespace: "lab", Name: "client", UID: "uid-3"}
		}
		return f
	}
	for range r.IntN(3) {
		n := FlowName{Name: policytest.Name(fmt.Sprintf(`w%d."x\.y.test`, r.IntN(99))), Asked: moment()}
		if r.IntN(4) == 0 {
			n.Asked = time.Time{}
		}
		if some() {
			n.Pod = []policy.PodRef{{Namespace: "shop", Name: "other", UID: "uid-2"}, policy.NodeRef("n2")}[r.IntN(2)]
		}
		if some() {
			n.Match = &policy.Match{Rule: &policy.Rule{Policy: "shop/p", Audit: some()}, Path: "spec.egress[0].matches[0]", Pattern: pattern(t, "**.y.test")}
		}
		f.Names, f.Reason = append(f.Names, n), []FlowReason{ReasonPorts, ReasonExpired, ReasonBlocked, ReasonUnmatched, ReasonAnother}[r.IntN(5)]
		f.Policies = append(f.Policies, fmt.Sprintf("shop/p-%d", r.IntN(9)))
	}
	return f
}

// linePod is the pod of a line, none of the node.
func linePod(p policy.PodRef, workload string, a netip.Addr) LinePod {
	if p.Namespace == "" {
		return LinePod{}
	}
	return LinePod{p.Namespace, p.Name, p.UID, workload, a.String()}
}

// lineHost is the host of a line, nil of a pod.
func lineHost(p policy.PodRef, o Owner, a netip.Addr) *LineHost {
	if p.Namespace != "" {
		return nil
	}
	h := &LineHost{IP: a.String()}
	if o.Known {
		h.UID, h.GID = &o.UID, &o.GID
	}
	return h
}

// TestEncodeLikeItsTwin: strict reading of random lines gives every field back, and
// each line is of the published schema.
func TestEncodeLikeItsTwin(t *testing.T) {
	schema, err := audittest.Strict()
	fatal.If(t, err)
	r := rand.New(rand.NewPCG(9, 10))
	for i := range short.Rounds(600, 3_000, 30_000) {
		var text []byte
		var want Line
		if i%2 == 0 {
			rec := randomRecord(t, r)
			text, want = appendRecord(nil, "node-1", &rec), lineOf("node-1", rec)
		} else {
			f := randomFlow(t, r)
			text, want = appendFlow(nil, nodeField("node-1"), f), flowLineOf("node-1", f)
		}
		var got Line
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		fatal.If(t, d.Decode(&got), "in", text)
		diff.Fatal(t, want, got, text)
		fatal.If(t, schema.Line(text))
	}
}

// TestRotationLosesNoLine: while many goroutines write and the file rotates, every line
// is in the files once and in order.
func TestRotationLosesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const keep = 200
	l, err := Open(Options{Node: "node-1", Path: path, Size: 4096, Keep: keep})
	fatal.If(t, err)
	const writers, each = 4, 250
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rec := example(t)
			for i := range each {
				rec.Pod.Name = fmt.Sprintf("writer-%d", w)
				rec.Latency = time.Duration(i) * time.Microsecond
				l.Write(rec)
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
			var got Line
			fatal.If(t, json.Unmarshal(row, &got), p, "in", row)
			if time.Duration(got.LatencyUS) != next[got.Pod.Name] {
				t.Fatalf("%s: line %d of %s comes after %d", p, got.LatencyUS, got.Pod.Name, next[got.Pod.Name]-1)
			}
			next[got.Pod.Name]++
		}
	}
	for w := range writers {
		diff.Equal(t, each, next[fmt.Sprintf("writer-%d", w)], "writer", w, "lines")
	}
	if files < 2 {
		t.Errorf("%d files: it did not rotate", files)
	}
}
