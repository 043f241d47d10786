package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// The steps of a fuzz input: a byte that says which, then its own bytes.
const (
	stepPacket    = iota // pod, length (2), a packet as it comes from a client
	stepQuestion         // pod, name, type, flags, spelling: a question from the tables
	stepUpstream         // length (2), what upstreams say from now on, behind id and question
	stepClock            // how far the clock moves, by the powers of two
	stepForget           // the kernel forgets all; odd: and refuses for the next query
	stepPublish          // which snapshot
	stepConfigure        // which configuration
	stepCluster          // which cluster
	stepsAll
)

// The tables from which steps draw.
var (
	fuzzPods  = []string{"10.1.0.2", "2001:db8:1::2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8", "192.0.2.250", "192.0.2.99"}
	fuzzNames = []string{"www.example.org.", "a.wild.test.", "one.test.", "two.test.", "nothing.test.", "db.shop.svc.cluster.local.", ".",
		"www.example.org.shop.svc.cluster.local.", "www.example.org.corp.test.", "app.ingress.test.", `w\.ww.example.org.`, "alive.namegate.invalid.", "version.bind."}
	fuzzTypes = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSRV, dns.TypeMX, dns.TypeANY, dns.TypeTXT, dns.TypeNone, dns.TypeCNAME, dns.TypeSVCB, dns.TypeNS, dns.TypeAXFR}

	fuzzConfigs = []string{
		"cache 1h {\nserve_stale 1h\nprefetch 2 1m 50%\n}",
		"cache\nfollow off",
		"cache 1h {\nserve_stale 1h\nprefetch 2 1m 50%\n}\nsearch lab.test\nrebind allow wild.test 10.96.0.0/16",
		"",
		"cache 1h {\nmin_ttl 5s\nsize 1MiB\nentries 16\n}\nttl 5s 1h",
	}
	fuzzPolicies = []string{
		labPolicies,
		strings.ReplaceAll(labPolicies, "app: web}}", "app: both}}"),
		strings.NewReplacer("maxSeconds: 100", "maxSeconds: 20", "port: 443}]", "port: 443}]\n    serverName: Require").Replace(labPolicies),
	}
	fuzzClusters = []Cluster{labCluster, {Nodes: labCluster.Nodes, Services: addrsOf("203.0.113.250", "192.0.2.1", "192.0.2.2")}}
)

// fuzzWorld is what all inputs share: nothing of it is changed.
type fuzzWorld struct {
	snaps   []*policy.Snapshot
	configs []*corefile.Config
}

func newFuzzWorld(t testing.TB) (w fuzzWorld) {
	for _, texts := range fuzzPolicies {
		w.snaps = append(w.snaps, compiled(t, texts, labPods))
	}
	for _, c := range fuzzConfigs {
		w.configs = append(w.configs, configWith(t, c))
	}
	return w
}

// drawn answers with the fuzzer's draws, as an upstream would.
type drawn struct{ tail []byte }

func (d *drawn) resolve(a wire.Query) (found, error) {
	query := a.Pack(4711)
	end := a.QuestionEnd()
	reply := append([]byte(nil), query[:end]...)
	if len(d.tail) < 8 {
		return found{}, errors.New("nobody answers")
	}
	reply[2], reply[3] = d.tail[0]|0x80, d.tail[1]
	copy(reply[6:wire.HeaderBytes], d.tail[2:8])
	m, reply := new(dns.Msg), append(reply, d.tail[8:]...)
	if !wire.Answers(query, reply, end) || m.Unpack(reply) != nil || m.Truncated {
		return found{}, errors.New("nobody answers")
	}
	// The parser accepts a record that ends before its data does, but no reader would
	// parse it again: no resolver sends one.
	msg, err := m.Pack()
	if err != nil || new(dns.Msg).Unpack(msg) != nil {
		return found{}, errors.New("nobody answers")
	}
	return found{m, netip.MustParseAddrPort("198.51.100.53:53")}, nil
}

// source takes bytes off an input.
type source struct{ left []byte }

func (s *source) byte() byte {
	if len(s.left) == 0 {
		return 0
	}
	b := s.left[0]
	s.left = s.left[1:]
	return b
}

func (s *source) bytes() []byte {
	n := min(int(s.byte())<<8|int(s.byte()), len(s.left))
	b := s.left[:n]
	s.left = s.left[n:]
	return b
}

func pick[T any](from []T, b byte) T { return from[int(b)%len(from)] }

// question draws a query.
func (s *source) question() []byte {
	name, qtype := pick(fuzzNames, s.byte()), pick(fuzzTypes, s.byte())
	flags, spelling := s.byte(), s.byte()
	if spelling&1 != 0 {
		name = strings.ToUpper(name[:len(name)/2]) + name[len(name)/2:]
	}
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}
	if flags&0x20 != 0 {
		m.Question[0].Qclass = dns.ClassCHAOS
	}
	m.Id, m.RecursionDesired, m.CheckingDisabled, m.AuthenticatedData = uint16(spelling)<<8|uint16(flags), flags&1 == 0, flags&2 != 0, flags&4 != 0
	if flags&8 != 0 {
		m.SetEdns0(uint16(spelling)<<5, flags&16 != 0)
		if flags&0x40 != 0 {
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}}
		}
		if flags&0x80 != 0 {
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID})
		}
	}
	msg, err := m.Pack()
	if err != nil {
		return make([]byte, wire.HeaderBytes)
	}
	return msg
}

// fuzzRun is one input.
type fuzzRun struct {
	*cacheLab
	t     *testing.T
	world fuzzWorld
	up    *drawn
	fails bool // the kernel, for the next query
}

func newFuzzRun(t *testing.T, w fuzzWorld) *fuzzRun {
	r := &fuzzRun{cacheLab: bareCacheLab(t, w.configs[0]), t: t, world: w, up: new(drawn)}
	r.s.log = &discardLog{}
	r.use(r.config, r.up)
	r.s.Publish(w.snaps[0])
	r.s.SetCluster(fuzzClusters[0])
	return r
}

type discardLog struct{ repeats }

func (*discardLog) Write(audit.Record) {}

func (*discardLog) Repeat(*audit.Prepared, time.Time, netip.Addr, time.Duration) {}

func (r *fuzzRun) run(data []byte) {
	in := &source{data}
	for steps := 0; len(in.left) > 0 && steps < 64; steps++ {
		switch in.byte() % stepsAll {
		case stepPacket:
			pod, packet := in.byte(), in.bytes()
			r.packet(pick(fuzzPods, pod), packet, pod&0x80 != 0)
		case stepQuestion:
			pod := in.byte()
			r.packet(pick(fuzzPods, pod), in.question(), pod&0x80 != 0)
		case stepUpstream:
			r.up.tail = in.bytes()
		case stepClock:
			r.pass(time.Millisecond << (in.byte() % 24))
		case stepForget:
			r.kernel.forget(func(opening) bool { return true })
			r.fails = in.byte()&1 != 0
		case stepPublish:
			r.s.Publish(pick(r.world.snaps, in.byte()))
		case stepConfigure:
			r.config = pick(r.world.configs, in.byte())
			r.use(r.config, r.up)
		case stepCluster:
			r.s.SetCluster(pick(fuzzClusters, in.byte()))
		}
		r.settle()
	}
	diff.MustEqual(r.t, 0, r.s.stats.Panics.Load(), "faults")
}

// packet takes one packet through the proxy as the sockets' readers do.
func (r *fuzzRun) packet(from string, packet []byte, tcp bool) {
	if !wire.IsQuery(packet) {
		return
	}
	who := r.who(from)
	if !who.known {
		return
	}
	if r.fails {
		r.fails = false
		r.kernel.fail(errors.New("the kernel is busy"))
		defer r.kernel.fail(nil)
	}
	if !tcp {
		renewed := r.s.stats.Prefetches.Load()
		if msg := r.fromPacketCache(from, packet); msg != nil {
			r.wantHonest(packet, msg, who, false)
			r.kernel.fail(nil)
			if long := r.decidedAgain(from, packet, true); r.s.stats.Prefetches.Load() == renewed {
				r.wantSame(packet, msg, long)
			}
			return
		}
	}
	msg := r.decidedAgain(from, packet, tcp)
	if tcp {
		framed := upstreamtest.Frame(msg)
		diff.MustEqual(r.t, len(msg), int(binary.BigEndian.Uint16(framed)), "the length in a reply's frame")
	}
	r.wantHonest(packet, msg, who, tcp)
}

// FuzzPacket takes packets of several pods through the whole proxy, the upstream's
// answers, the clock, the kernel's memory and every reload as the input has them.
func FuzzPacket(f *testing.F) {
	for _, seed := range packetSeeds(f) {
		f.Add(seed)
	}
	w := newFuzzWorld(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newFuzzRun(t, w)
		r.run(data)
		_ = r.s.Close(context.Background())
	})
}
