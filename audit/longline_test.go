package audit

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

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
