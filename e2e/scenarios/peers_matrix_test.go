package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// The axes of the union. A client is named after what selects it, a destination after
// what allows it.
var (
	unionClients = []string{"none", "np", "fqdn", "both"}
	unionAllowed = []string{"np", "fqdn", "both", "none"}
	unionPlaces  = []string{"local", "remote"}
	unionProtos  = []string{"tcp", "udp"}
	// unionWays are the ways to dial a pod, and the resulting pod port: by a Service's
	// cluster address, by an address of a headless name, and by an address without a
	// query; or by a name, outside.
	unionWays = map[string]uint16{"ClusterIP": 8081, "headless": 8080, "pod IP": 8082, "outside": 443}
)

// servicePort is what pods dial of Services: it is not the pods'.
const servicePort = 80

// The policies of the union. An engine beside judges the actual destination; policies
// with a Service's name do not depend on its target port.
const (
	unionNP = `
podSelector: {matchExpressions: [{key: app, operator: In, values: [np, both]}]}
policyTypes: [Egress]
egress:
- to: [{podSelector: {matchLabels: {np: "yes"}}}]
  ports: [{protocol: TCP, port: 8080, endPort: 8082}, {protocol: UDP, port: 8080, endPort: 8082}]
- to: [{ipBlock: {cidr: 198.51.100.0/27, except: [198.51.100.16/28]}}, {ipBlock: {cidr: "2001:db8:1::/64"}}]
  ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 443}]`
	unionFQDN = `
podSelector: {matchExpressions: [{key: app, operator: In, values: [fqdn, both]}]}
egress:
- matches: [{name: fqdn.example.org}, {name: both.example.org}]
  ports: [{protocol: ALL, port: 443}]
- matches: [{pattern: "*-fqdn.headless.shop.svc.cluster.local"}, {pattern: "*-both.headless.shop.svc.cluster.local"}]
  ports: [{protocol: ALL, port: 8080}]
- matches: [{pattern: "*-fqdn.shop.svc.cluster.local"}, {pattern: "*-both.shop.svc.cluster.local"}]
  ports: [{protocol: ALL, port: 80}]`
)

// unionRow is one client's connection to one destination.
type unionRow struct {
	client, allowed, place, way, proto string
	v6                                 bool
	name                               string // asked for first, where something allows names
	dialled                            netip.AddrPort
	arrival                            lab.Arrival
	sniffer                            *lab.Sniffer
}

func (r *unionRow) String() string {
	family := "v4"
	if r.v6 {
		family = "v6"
	}
	return strings.Join([]string{"client " + r.client, "allowed by " + r.allowed, r.place, r.way, r.proto, family}, "/")
}

// byNP and byName tell what allows the destination to a client that all policies select.
func (r *unionRow) byNP() bool { return r.allowed == "np" || r.allowed == "both" }
func (r *unionRow) byName() bool {
	return (r.allowed == "fqdn" || r.allowed == "both") && r.way != "pod IP"
}

// selected tells whether a kind of policy selects the client.
func (r *unionRow) selected(kind string) bool { return r.client == kind || r.client == "both" }

// unionWorld builds clients, destinations and names on a stage, and returns the rows.
func unionWorld(s *peerStage) (rows []*unionRow) {
	for i, c := range unionClients {
		s.client(c, 10+i)
	}
	for i, allowed := range unionAllowed {
		v4, v6 := outsideOf(allowed)
		rows = append(rows, s.unionRows("outside", allowed, "world", allowed+".example.org", 443, v4, v6, v4, v6)...)
		for j, place := range unionPlaces {
			n, name := 20+10*j+i, place+"-"+allowed
			labels := map[string]string{"name": name}
			if allowed == "np" || allowed == "both" {
				labels["np"] = "yes"
			}
			p := s.server(name, n, place == "remote", labels, 8080, 8081, 8082)
			v4, v6 := s.service(n, servicePort, p, 8081)
			rows = append(rows, s.unionRows("ClusterIP", allowed, place, name+".shop.svc.cluster.local", servicePort, v4, v6, p.Addr4, p.Addr6)...)
			rows = append(rows, s.unionRows("headless", allowed, place, name+".headless.shop.svc.cluster.local", 8080, p.Addr4, p.Addr6, p.Addr4, p.Addr6)...)
			rows = append(rows, s.unionRows("pod IP", allowed, place, "", 8082, p.Addr4, p.Addr6, p.Addr4, p.Addr6)...)
		}
	}
	world := s.sniff(s.World, "eth0")
	for _, r := range rows {
		if r.sniffer = world; r.place != "world" {
			r.sniffer = s.pods[r.place+"-"+r.allowed].sniffer
		}
	}
	return rows
}

// outsideOf is in the networks of the NetworkPolicy, or not.
func outsideOf(allowed string) (v4, v6 netip.Addr) {
	n := map[string]int{"np": 1, "both": 2, "fqdn": 17, "none": 18}[allowed]
	return netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", n)), netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", 1+n/16, n))
}

// unionRows is every client's, protocol's and family's row of a destination.
func (s *peerStage) unionRows(way, allowed, place, name string, port uint16, v4, v6, to4, to6 netip.Addr) (rows []*unionRow) {
	if name != "" {
		s.zone.add(fmt.Sprintf("%s. 60 IN A %s\n%s. 60 IN AAAA %s", name, v4, name, v6))
	}
	for _, client := range unionClients {
		for _, proto := range unionProtos {
			for _, six := range []bool{false, true} {
				r := &unionRow{client: client, allowed: allowed, place: place, way: way, proto: proto, v6: six, name: name}
				r.dialled = netip.AddrPortFrom(v4, port)
				r.arrival = lab.Arrival{From: s.Pod(client).Addr4, To: to4, Protocol: map[string]byte{"tcp": 6, "udp": 17}[proto], Port: unionWays[way]}
				if six {
					r.dialled = netip.AddrPortFrom(v6, port)
					r.arrival.From, r.arrival.To = s.Pod(client).Addr6, to6
				}
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// runUnion runs rows at once and asserts outcomes and what arrived. asks tells whether
// names are asked for.
func (s *peerStage) runUnion(rows []*unionRow, asks bool, want func(*unionRow) lab.Outcome) {
	s.t.Helper()
	work := make(chan *unionRow)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for r := range work {
				s.runUnionRow(r, asks, want(r))
			}
		})
	}
	before := make([]int, len(rows))
	for i, r := range rows {
		before[i] = r.sniffer.SawFlow(r.arrival)
	}
	for _, r := range rows {
		work <- r
	}
	close(work)
	wg.Wait()
	for _, p := range s.pods {
		if p.sniffer != nil {
			if err := p.sniffer.SettleAt(p.Addr4, s.Node); err != nil {
				s.t.Error(err)
			}
		}
	}
	passed := 0
	for i, r := range rows {
		arrived := r.sniffer.SawFlow(r.arrival) - before[i]
		if answered := want(r) == lab.Answered; answered != (arrived > 0) {
			s.t.Errorf("%s: %d packets arrived, and the connection should be %s", r, arrived, want(r))
		} else if answered {
			passed++
		}
	}
	s.t.Logf("%d rows, %d of them allowed", len(rows), passed)
}

func (s *peerStage) runUnionRow(r *unionRow, asks bool, want lab.Outcome) {
	if asks && r.name != "" && r.selected("fqdn") {
		qtype := dns.TypeA
		if r.v6 {
			qtype = dns.TypeAAAA
		}
		if reply, err := s.ask(r.client, r.proto, r.name, qtype); err != nil {
			s.t.Errorf("%s: ask: %v", r, err)
		} else if got := lab.Addresses(reply); len(got) != 1 || got[0] != r.dialled.Addr() {
			s.t.Errorf("%s: answer %v", r, got)
		}
	}
	patience := patienceFor(r.proto, want)
	if want == denied {
		patience = lab.Patience
	}
	got := s.Pod(r.client).ProbeFor(r.proto, r.dialled, patience)
	switch {
	case want == lab.Refused && r.proto == "udp" && got == lab.Silent:
		// The kernel sends a pod few ICMP errors a second.
	case want == denied && got != lab.Answered:
	case got != want:
		s.t.Errorf("%s: %s, want %s", r, got, want)
	}
}

// denied is an outcome of rows whose refusal depends on queries in the background.
const denied lab.Outcome = "denied"

// byNamegate is the outcome of a row without another engine.
func byNamegate(r *unionRow) lab.Outcome {
	if !r.selected("fqdn") || r.byName() || r.selected("np") && r.byNP() {
		return lab.Answered
	}
	return lab.Refused
}

// byEngine is what becomes of a row that an engine alone judges, which obeys the
// NetworkPolicy.
func byEngine(r *unionRow) lab.Outcome {
	if !r.selected("np") || r.byNP() {
		return lab.Answered
	}
	return lab.Silent
}

// TestUnionAlone: without another engine, the union is the exact result for pods that
// policies select.
func TestUnionAlone(t *testing.T) {
	staged(t, onEach, newPeerStage, func(t *testing.T, s *peerStage) {
		rows := unionWorld(s)
		s.start(s.manifests(map[string]string{"np.yaml": networkPolicy("np", unionNP), "fqdn.yaml": policy("fqdn", unionFQDN)}))
		s.runUnion(rows, true, byNamegate)
	})
}

// TestUnionBeside: another engine enforces the NetworkPolicy too, at the top of the
// filter table, which it rewrites all the time. It may only narrow; with the NetworkPolicy that
// check prints for it, applied unchanged, the union holds.
func TestUnionBeside(t *testing.T) {
	t.Parallel()
	for _, style := range []lab.EngineStyle{lab.KubeRouter, lab.Felix} {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) { unionBeside(t, kind, style) })
		})
	}
}

func unionBeside(t *testing.T, kind nodeKind, style lab.EngineStyle) {
	s := newPeerStage(t, kind)
	rows := unionWorld(s)
	files := s.manifests(map[string]string{"np.yaml": networkPolicy("np", unionNP), "fqdn.yaml": policy("fqdn", unionFQDN)})
	fatal.If(t, s.Ready())
	np := parsed[networkingv1.NetworkPolicy](t, files["np.yaml"])
	s.withEngine(style)
	s.obeys(np)
	s.runUnion(rows, false, byEngine) // it is one: without the agent this is all that denies

	s.start(files)
	// Names do not resolve for pods that the engine limits, and what remains is what both allow.
	c, err := s.Pod("both").Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
	fatal.If(t, err)
	defer c.Close()
	if _, err := lab.Exchange(c, "fqdn.example.org", dns.TypeA, 3*time.Second); err == nil {
		t.Error("a name resolves though the engine does not let the query pass")
	}
	limited := rowsOf(rows, "both")
	s.runUnion(limited, false, func(r *unionRow) lab.Outcome {
		if r.byNP() {
			return lab.Answered
		}
		return denied
	})
	files["for-engine.yaml"] = s.forEngine(files, "both", "fqdn.example.org:443")
	s.apply(files)
	printed := parsed[networkingv1.NetworkPolicy](t, files["for-engine.yaml"])
	dnsAlone := printed.DeepCopy()
	dnsAlone.Spec.Egress = dnsAlone.Spec.Egress[:1]
	s.obeys(dnsAlone, np)
	s.runUnion(limited, true, byBoth)

	s.obeys(printed, np)
	s.runUnion(rows, true, func(r *unionRow) lab.Outcome {
		if r.client == "np" {
			return byEngine(r)
		}
		return byNamegate(r)
	})
	if n := s.engine.Writes(); n < 10 {
		t.Errorf("the engine wrote its tables %d times", n)
	}
}

// forEngine returns the NetworkPolicy that check prints for another engine.
func (s *peerStage) forEngine(files map[string]string, pod, to string) string {
	s.t.Helper()
	m := check.New()
	for name, text := range files {
		fatal.If(s.t, m.Add(name, []byte(text)))
	}
	fatal.If(s.t, m.Add("services.yaml", []byte(s.manifestsOfServices)))
	target, err := explain.ParseTarget(to)
	fatal.If(s.t, err)
	a := m.Ask(m.PodsNamed("shop", pod)[0], target, check.Options{ClusterDomain: "cluster.local"})
	if a.Advice == nil || a.Advice.NetworkPolicy == "" {
		s.t.Fatalf("nothing for another engine: %s", a)
	}
	return a.Advice.NetworkPolicy
}

// byBoth is what becomes of a row of the client that both select while the engine lets
// names resolve and nothing more.
func byBoth(r *unionRow) lab.Outcome {
	if r.byName() && !r.byNP() {
		return lab.Silent
	}
	return byNamegate(r)
}

func rowsOf(rows []*unionRow, client string) (out []*unionRow) {
	for _, r := range rows {
		if r.client == client {
			out = append(out, r)
		}
	}
	return out
}
