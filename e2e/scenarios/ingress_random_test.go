package scenarios

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	model "github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// enforcesAll makes a stage whose agent enforces all NetworkPolicies.
func enforcesAll(t *testing.T, kind nodeKind) *peerStage {
	t.Helper()
	s := newPeerStage(t, kind)
	s.agentWith(peersCorefile, "--node-name", "node-a", "--enforce-network-policies")
	return s
}

// compiled is the snapshot of the manifests of the stage's agent, as an agent that enforces all NetworkPolicies
// compiles them.
func (s *peerStage) compiled() *model.Snapshot {
	s.t.Helper()
	source, err := manifest.New(s.agent.Dir+"/manifests", "node-a", slog.New(slog.DiscardHandler))
	fatal.If(s.t, err)
	ctx, end := context.WithCancel(s.t.Context())
	defer end()
	var in compile.Input
	fatal.If(s.t, source.Run(ctx, func(state manifest.State) {
		in = state.Input
		end()
	}))
	in.EnforceNetworkPolicies = true
	return compile.New().Compile(in)
}

// directed is a random connection, and what the evaluation says of both its ends.
type directed struct {
	from    *peerPod // nil for the world
	proto   string
	dialled netip.AddrPort
	reached netip.AddrPort
	allowed bool
}

func (d *directed) String() string {
	from := "world"
	if d.from != nil {
		from = d.from.name
	}
	return fmt.Sprintf("%s %s to %s (%s)", from, d.proto, d.dialled, d.reached)
}

var ingressPorts = []int{8080, 8081}

// randomIngressWorld makes pods on both nodes, each with a Service.
func randomIngressWorld(s *peerStage) {
	for i, name := range []string{"a1", "b1", "b2", "c1"} {
		p := s.server(name, 20+i, false, map[string]string{"app": name[:1], "no": name[1:]}, ingressPorts...)
		s.service(20+i, 80, p, 8080)
	}
	for i, name := range []string{"a3", "b3"} {
		p := s.server(name, 30+i, true, map[string]string{"app": name[:1], "no": name[1:]}, ingressPorts...)
		s.service(30+i, 80, p, 8081)
	}
}

// randomPolicies writes policies of the standards for both directions.
func randomPolicies(r *rand.Rand) map[string]string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	pods := func() string {
		return pick("{}", "{matchLabels: {app: a}}", "{matchLabels: {app: b}}", "{matchExpressions: [{key: app, operator: NotIn, values: [a]}]}", "{matchLabels: {no: \"1\"}}")
	}
	peer := func() string {
		return pick("{podSelector: "+pods()+"}", "{podSelector: "+pods()+"}", "{namespaceSelector: {}, podSelector: "+pods()+"}",
			"{ipBlock: {cidr: 10.1.0.0/24, except: [10.1.0.21/32]}}", "{ipBlock: {cidr: 192.168.77.2/32}}", "{ipBlock: {cidr: \"fd00:77::/64\"}}", "{ipBlock: {cidr: \"::/0\"}}", "{ipBlock: {cidr: 10.2.0.0/24}}")
	}
	ports := func() string {
		return pick("", "", ", ports: [{port: 8080}]", ", ports: [{port: 8080, endPort: 8081}, {protocol: UDP, port: 8081}]", ", ports: [{protocol: UDP, port: 8080}]")
	}
	rules := func(word string) string {
		var out []string
		for range r.IntN(3) {
			if from := peer(); r.IntN(6) > 0 {
				out = append(out, "{"+word+": ["+from+", "+peer()+"]"+ports()+"}")
			} else {
				out = append(out, "{"+word+": []"+ports()+"}")
			}
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	files := map[string]string{}
	for i := range 4 {
		text := ""
		if r.IntN(2) > 0 {
			files[fmt.Sprintf("np%d.yaml", i)] = ""
			continue
		}
		types := pick("[Ingress]", "[Egress]", "[Ingress, Egress]")
		text = "podSelector: " + pods() + "\npolicyTypes: " + types
		if strings.Contains(types, "Ingress") {
			text += "\ningress: " + rules("from")
		}
		if strings.Contains(types, "Egress") {
			text += "\negress: " + rules("to")
		}
		files[fmt.Sprintf("np%d.yaml", i)] = networkPolicy(fmt.Sprintf("np%d", i), text)
	}
	for i, tier := range []string{"Admin", "Admin", "Baseline"} {
		ordered := func(word string) string {
			var out []string
			for range r.IntN(3) {
				proto := pick("", "", ", protocols: [{tcp: {destinationPort: {number: 8080}}}]", ", protocols: [{udp: {destinationPort: {range: {start: 8080, end: 8081}}}}]")
				out = append(out, "{action: "+pick("Accept", "Deny", "Pass")+", "+word+": ["+pick("{namespaces: {}}", "{pods: {namespaceSelector: {}, podSelector: "+pods()+"}}")+"]"+proto+"}")
			}
			return "[" + strings.Join(out, ", ") + "]"
		}
		name := fmt.Sprintf("cnp%d", i)
		files[name+".yaml"] = ""
		if r.IntN(2) > 0 {
			files[name+".yaml"] = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: " + name + "}\nspec:\n  tier: " + tier +
				fmt.Sprintf("\n  priority: %d", 10*i) + "\n  subject: {pods: {namespaceSelector: {}, podSelector: " + pods() + "}}\n  ingress: " + ordered("from") + "\n  egress: " + ordered("to") + "\n"
		}
	}
	return files
}

// randomConnections returns connections between all, and what the evaluation of both ends says.
func (s *peerStage) randomConnections(r *rand.Rand, snap *model.Snapshot, n int) (out []*directed) {
	var all []*peerPod
	for _, name := range []string{"a1", "b1", "b2", "c1", "a3", "b3"} {
		all = append(all, s.pods[name])
	}
	for len(out) < n {
		d := &directed{proto: []string{"tcp", "udp"}[r.IntN(2)]}
		if i := r.IntN(len(all) + 1); i < len(all) {
			d.from = all[i]
		}
		to, six := all[r.IntN(len(all))], r.IntN(2) == 1
		if d.from == to || to.remote && (d.from == nil || d.from.remote) {
			continue
		}
		no := 20 + slices.Index(all, to)
		target := 8080
		if to.remote {
			no, target = 30+slices.Index(all, to)-4, 8081
		}
		at, source := to.Addr4, netip.MustParseAddr("192.168.77.2")
		service, _ := serviceAddr(no)
		if six {
			at, source = to.Addr6, netip.MustParseAddr("fd00:77::2")
			_, service = serviceAddr(no)
		}
		if d.from != nil {
			if source = d.from.Addr4; six {
				source = d.from.Addr6
			}
		}
		d.reached = netip.AddrPortFrom(at, uint16(ingressPorts[r.IntN(2)]))
		if d.dialled = d.reached; d.from != nil && !d.from.remote && r.IntN(2) == 1 {
			d.dialled, d.reached = netip.AddrPortFrom(service, 80), netip.AddrPortFrom(at, uint16(target))
		}
		f := model.Flow{Protocol: map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP}[d.proto], Dialled: d.dialled, Reached: d.reached, Source: source}
		d.allowed = true
		if d.from != nil && !d.from.remote {
			d.allowed, _ = model.Evaluate(snap.View(source), snap, &f)
		}
		if d.allowed && !to.remote {
			d.allowed, _ = model.EvaluateIngress(snap.View(at), snap, &f)
		}
		out = append(out, d)
	}
	return out
}

// TestRandomBothDirections: what arrives is what the evaluation allows at both ends, in random worlds of policies for
// both directions, directly and by Services.
func TestRandomBothDirections(t *testing.T) {
	staged(t, onEach, enforcesAll, func(t *testing.T, s *peerStage) {
		seed, worlds, probes := uint64(1), 3, 160
		if short.Nightly() {
			worlds, probes = 25, 200
		}
		r := rand.New(rand.NewPCG(seed, 0))
		randomIngressWorld(s)
		s.start(s.manifests(map[string]string{}))
		for world := range worlds {
			files := randomPolicies(r)
			s.apply(files)
			snap := s.compiled()
			all := s.randomConnections(r, snap, probes)
			work, allowed := make(chan *directed), 0
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for d := range work {
						from := s.World
						if d.from != nil {
							from = d.from.Host
						}
						patience := lab.Patience
						if d.allowed {
							patience = lab.Limit
						}
						got := from.ProbeFor(d.proto, d.dialled, patience)
						if (got == lab.Answered) != d.allowed {
							s.t.Errorf("world %d: %s: %s, and the evaluation says %v", world, d, got, d.allowed)
						}
					}
				})
			}
			for _, d := range all {
				if d.allowed {
					allowed++
				}
				work <- d
			}
			close(work)
			wg.Wait()
			t.Logf("world %d: %d of %d connections are allowed", world, allowed, len(all))
			if t.Failed() {
				for name, text := range files {
					t.Logf("%s\n%s", name, text)
				}
				return
			}
		}
		diff.Equal(t, false, t.Failed(), "failed")
	})
}
