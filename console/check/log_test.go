package check

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
)

// dnsLine is an answer for a pod of shop.
func dnsLine(name string, addresses ...string) audit.Line {
	line := audit.Line{
		V: audit.Version, Kind: audit.KindDNS, Time: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Verdict: "allowed",
		Pod: audit.LinePod{Namespace: "shop", Name: "cart-1"}, Question: &audit.LineQuestion{Name: name, Type: "A", Class: "IN"}, Rcode: "NOERROR",
	}
	for _, a := range addresses {
		line.Answers = append(line.Answers, audit.LineAnswer{Address: a, Granted: true})
	}
	return line
}

const oneName = "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p, namespace: shop}\nspec: {podSelector: {}, egress: [{matches: [{name: a.test}]}]}\n"

// TestLogIsBounded: a log of any length keeps a bounded number of pairs, and says so; shared
// addresses among the first, and unresolved names, are found all the same.
func TestLogIsBounded(t *testing.T) {
	m := manifests(t, oneName)
	l := NewLog(m)
	address := func(i int) string {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 198<<24|18<<16+uint32(i)) // 198.18.0.0
		return netip.AddrFrom4(b).String()
	}
	const before = maxSightings - 5000 // of addresses that this test has no need of
	l.sightings = before
	l.Add(dnsLine("a.test", address(0)))
	l.Add(dnsLine("b.test", address(0)))
	for i := range 6000 {
		l.Add(dnsLine(fmt.Sprintf("n%d.test", i), address(i+1)))
	}
	for i := range 1000 { // of one address
		l.Add(dnsLine(fmt.Sprintf("m%d.test", i), address(0)))
	}
	pairs := 0
	for _, s := range l.addresses {
		pairs += len(s.accepted) + len(s.others)
	}
	if before+pairs != maxSightings || l.sightings != before+pairs || len(l.addresses) > pairs {
		t.Errorf("%d pairs, %d counted, %d addresses", pairs, l.sightings, len(l.addresses))
	}
	got := says(m, Options{ClusterDomain: "cluster.local", Log: l})
	if len(got) != 2 || !strings.Contains(got[0], "the log has more than 262144 pairs") || !strings.Contains(got[1], "also answered for b.test") {
		t.Errorf("%q", got)
	}
}

// TestLogWithoutLines: an empty log accuses no name.
func TestLogWithoutLines(t *testing.T) {
	m := manifests(t, oneName)
	if got := says(m, Options{ClusterDomain: "cluster.local", Log: NewLog(m)}); len(got) != 1 || !strings.Contains(got[0], "the log (without lines) has no answered query of a pod of namespace shop") {
		t.Errorf("%q", got)
	}
}
