package scenarios

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/wiretest"
)

// The axes of the matrix. Each row is one question of one selected pod and what
// packets to its answer's address may do, from that pod, from a selected
// neighbour that is allowed nothing, and from a pod that no policy selects.
var (
	kinds   = []string{"name", "star", "starstar", "partial"}
	answers = []string{"direct", "chain", "off the chain", "wrong question", "metadata", "unmatched"}
	protos  = []string{"tcp", "udp", "icmp"}
	ports   = []string{"port", "range", "ALL"}
	denials = []string{"Reject", "Drop"}
)

// allows is the ports of the axis, and the probed port.
var portRules = map[string]struct {
	rule  string
	probe uint16
}{
	"port":  {"ports: [{protocol: ALL, port: 80}]", 80},
	"range": {"ports: [{protocol: TCP, port: 8000, endPort: 8100}, {protocol: UDP, port: 8080}]", 8080},
	"ALL":   {"", 443},
}

type row struct {
	id                               int
	kind, answer, proto, ports, deny string
	v6                               bool
	addr                             netip.Addr
}

// pod is the selected pod of the row: one for each ports and deny.
func (r row) pod() string { return strings.ToLower(r.deny + "-" + r.ports) }

// name is the question; the row's number in it tells the world what to answer.
func (r row) name() string {
	if r.answer == "unmatched" {
		return map[string]string{
			"name": "r%d.exact.test.example.net", "star": "x.r%d.star.test", "starstar": "r%d.notdeep.test", "partial": "v.r%d.part.test",
		}[r.kind]
	}
	return map[string]string{
		"name": "r%d.exact.test", "star": "r%d.star.test", "starstar": "a.b.r%d.deep.test", "partial": "r%dw.part.test",
	}[r.kind]
}

func (r row) qname() string { return fmt.Sprintf(r.name(), r.id) }

func (r row) String() string {
	family := "v4"
	if r.v6 {
		family = "v6"
	}
	return strings.Join([]string{strconv.Itoa(r.id), r.kind, r.answer, r.proto, r.ports, family, r.deny}, "/")
}

// allowed is the oracle: the answer is honest and the ports hold the protocol.
func (r row) allowed() bool {
	return (r.answer == "direct" || r.answer == "chain") && (r.proto != "icmp" || r.ports == "ALL")
}

// denied is how a denied probe of the row's pod fails.
func (r row) denied() lab.Outcome {
	if r.deny == "Drop" || r.proto == "icmp" {
		return lab.Silent
	}
	return lab.Refused
}

func rows() []row {
	var out []row
	for _, k := range kinds {
		for _, a := range answers {
			for _, p := range protos {
				for _, po := range ports {
					for _, d := range denials {
						for _, v6 := range []bool{false, true} {
							r := row{id: len(out) + 1, kind: k, answer: a, proto: p, ports: po, deny: d, v6: v6}
							r.addr = netip.AddrFrom4([4]byte{198, 18, byte(r.id >> 8), byte(r.id)})
							if v6 {
								r.addr = netip.MustParseAddr(fmt.Sprintf("2001:db8:18::%x", r.id))
							}
							if a == "metadata" {
								r.addr = metadata(v6)
							}
							out = append(out, r)
						}
					}
				}
			}
		}
	}
	return out
}

func metadata(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr("fd00:ec2::254")
	}
	return netip.MustParseAddr("169.254.169.254")
}

// answerRow is the world's resolver for the matrix.
func answerRow(all []row) lab.Answerer {
	return func(query *dns.Msg) *dns.Msg {
		r := new(dns.Msg).SetReply(query)
		q := query.Question[0]
		id := 0
		for label := range strings.SplitSeq(q.Name, ".") {
			if n, err := strconv.Atoi(strings.Trim(label, "rw")); err == nil && strings.HasPrefix(label, "r") {
				id = n
			}
		}
		if id == 0 || id > len(all) {
			return r.SetRcode(query, dns.RcodeNameError)
		}
		row := all[id-1]
		if (q.Qtype == dns.TypeAAAA) != row.v6 {
			return r
		}
		add := func(format string, args ...any) {
			if err := wiretest.Fill(r, fmt.Sprintf(format, args...)); err != nil {
				panic(err)
			}
		}
		typ := dns.TypeToString[q.Qtype]
		switch row.answer {
		case "chain":
			add("%s 60 IN CNAME c1.cdn.test.", q.Name)
			add("c1.cdn.test. 60 IN CNAME c2.cdn.test.")
			add("c2.cdn.test. 60 IN %s %s", typ, row.addr)
		case "off the chain":
			add("%s 60 IN CNAME c1.cdn.test.", q.Name)
			add("stranger.test. 60 IN %s %s", typ, row.addr)
		case "wrong question":
			r.Question[0].Name = "wrong.test."
			add("wrong.test. 60 IN %s %s", typ, row.addr)
		default:
			add("%s 60 IN %s %s", q.Name, typ, row.addr)
		}
		return r
	}
}

// matrixManifests renders the six selected pods, the neighbour and the
// unselected one, and the policies.
func matrixManifests(s *stage, all []row) map[string]string {
	files := map[string]string{}
	n := 10
	for _, p := range ports {
		for _, d := range denials {
			pod := strings.ToLower(d + "-" + p)
			s.addPod(pod, n)
			n++
			files[pod+".yaml"] = s.Pod(pod).Manifest("shop", pod, map[string]string{"app": pod})
			spec := "podSelector: {matchLabels: {app: " + pod + "}}\ndenied: " + d + "\negress:\n- matches:\n" +
				"  - pattern: \"*.star.test\"\n  - pattern: \"**.deep.test\"\n  - pattern: \"r*w.part.test\"\n"
			for _, r := range all {
				if r.kind == "name" && r.answer != "unmatched" && r.pod() == pod {
					spec += "  - name: " + fmt.Sprintf("r%d.exact.test", r.id) + "\n"
				}
			}
			if rule := portRules[p].rule; rule != "" {
				spec += "  " + rule + "\n"
			}
			files[pod+"-policy.yaml"] = policy(pod, spec)
		}
	}
	s.addPod("neighbour", 30)
	s.addPod("free", 31)
	files["neighbour.yaml"] = s.Pod("neighbour").Manifest("shop", "neighbour", map[string]string{"app": "neighbour"})
	files["free.yaml"] = s.Pod("free").Manifest("shop", "free", nil)
	files["neighbour-policy.yaml"] = policy("neighbour", "podSelector: {matchLabels: {app: neighbour}}")
	return files
}

func TestMatrix(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		all := rows()
		fatal.If(t, s.World.IP("-6", "route", "add", "local", "fd00:ec2::254/128", "dev", "lo"))
		s.outside.SetAnswer(answerRow(all))
		s.start(matrixManifests(s, all))
		s.world = s.sniff(s.World, "eth0")
		work := make(chan row)
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for r := range work {
					s.runRow(r)
				}
			})
		}
		for _, r := range all {
			work <- r
		}
		close(work)
		wg.Wait()
		s.settle()
		for _, v6 := range []bool{false, true} {
			if n := s.world.Saw(metadata(v6)); n != 0 {
				t.Errorf("%d packets reached the metadata address %s", n, metadata(v6))
			}
		}
		t.Logf("%d rows", len(all))
	})
}

// settle lets the sniffer in the world catch up: only then does "not seen" mean "not arrived".
func (s *stage) settle() {
	s.t.Helper()
	if err := s.world.Settle(s.Node); err != nil {
		s.t.Error(err)
	}
}

func (s *stage) runRow(r row) {
	qtype := dns.TypeA
	if r.v6 {
		qtype = dns.TypeAAAA
	}
	network := "udp"
	if r.id%2 == 0 {
		network = "tcp"
	}
	// Whatever the answer: what packets do is what counts.
	if reply, err := s.ask(r.pod(), network, r.qname(), qtype); err == nil && r.allowed() && len(lab.Addresses(reply)) != 1 {
		s.t.Errorf("%s: %d addresses, rcode %d", r, len(lab.Addresses(reply)), reply.Rcode)
	} else if err != nil && r.answer != "wrong question" {
		s.t.Errorf("%s: ask: %v", r, err)
	}
	to := netip.AddrPortFrom(r.addr, portRules[r.ports].probe)
	probe := func(pod string, want lab.Outcome) {
		got := s.Pod(pod).ProbeFor(r.proto, to, patienceFor(r.proto, want))
		if want == lab.Refused && r.proto == "udp" && got == lab.Silent {
			got = want // the kernel sends a pod few ICMP errors a second
		}
		diff.Equal(s.t, want, got, r, "pod", pod, "to", to)
	}
	refused := lab.Refused
	if r.proto == "icmp" {
		refused = lab.Silent
	}
	probe("neighbour", refused)
	if !r.allowed() {
		probe(r.pod(), r.denied())
	} else if r.ports != "ALL" && r.proto != "icmp" {
		if got := s.Pod(r.pod()).Probe(r.proto, netip.AddrPortFrom(r.addr, 81)); got == lab.Answered {
			s.t.Errorf("%s: the wrong port answered", r)
		}
	}
	s.settle()
	diff.Equal(s.t, 0, s.world.Saw(r.addr), r, "denied packets that arrived")
	if r.allowed() {
		probe(r.pod(), lab.Answered)
	}
	if r.answer != "metadata" {
		probe("free", lab.Answered)
		s.settle()
		if s.world.Saw(r.addr) == 0 {
			s.t.Errorf("%s: nothing arrived at all: the row proves nothing", r)
		}
	}
}
