package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/short"
)

// aService leads its ports to others: "tcp/80=8080 udp/53=dns".
func aService(t testing.TB, namespace, name, ports string) *policy.Service {
	t.Helper()
	s := &policy.Service{Ref: policy.ServiceRef{Namespace: namespace, Name: name}}
	for _, text := range strings.Fields(ports) {
		from, to, _ := strings.Cut(text, "=")
		set, err := policy.ParsePortSet(from)
		fatal.If(t, err)
		r := set.Ranges()[0]
		p := policy.ServicePort{Protocol: r.Protocol, Port: r.First}
		if _, err := fmt.Sscan(to, &p.Target); err != nil {
			p.Target, p.TargetName = 0, to
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

// podPorts writes ports in one line.
func podPorts(p PodPorts) string {
	text := string(p.Numbers)
	for _, n := range p.Names {
		text += fmt.Sprintf(" %s/%s", n.Protocol, n.Name)
	}
	return text
}

func TestPodPorts(t *testing.T) {
	udp := v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolUDP), Port: ptr(int32(53))}
	all := v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolALL), Port: ptr(int32(80))}
	every := v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolTCP)}
	web := "web.shop.svc.cluster.local"
	for name, c := range map[string]struct {
		rules    []v1alpha1.EgressRule
		services []*policy.Service
		want     string
	}{
		"a number":                     {[]v1alpha1.EgressRule{on(aRule(web), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080")}, "tcp/80,tcp/8080"},
		"a name":                       {[]v1alpha1.EgressRule{on(aRule(web), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=http")}, "tcp/80 tcp/http"},
		"with a dot, in capitals":      {[]v1alpha1.EgressRule{on(aRule("Web.Shop.SVC.cluster.local."), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080")}, "tcp/80,tcp/8080"},
		"the same port":                {[]v1alpha1.EgressRule{on(aRule(web), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=80")}, "tcp/80"},
		"a port of another rule":       {[]v1alpha1.EgressRule{on(aRule(web), tcp(80)), on(aRule("x.test"), tcp(8080))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080")}, "tcp/80,tcp/8080"},
		"ports that merge":             {[]v1alpha1.EgressRule{on(aRule(web), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=81")}, "tcp/80-81"},
		"other ports of it":            {[]v1alpha1.EgressRule{on(aRule(web), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080 tcp/81=8081 udp/80=8082")}, "tcp/80,tcp/8080"},
		"all protocols":                {[]v1alpha1.EgressRule{on(aRule(web), all)}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080 udp/80=8082 sctp/80=http")}, "tcp/80,tcp/8080,udp/80,udp/8082,sctp/80 sctp/http"},
		"a name in both protocols":     {[]v1alpha1.EgressRule{on(aRule("dns.shop.svc.cluster.local"), udp, tcp(53))}, []*policy.Service{aService(t, "shop", "dns", "udp/53=dns tcp/53=dns")}, "tcp/53,udp/53 tcp/dns udp/dns"},
		"every port":                   {[]v1alpha1.EgressRule{aRule(web)}, []*policy.Service{aService(t, "shop", "web", "tcp/80=http")}, "any"},
		"every port of a protocol":     {[]v1alpha1.EgressRule{on(aRule(web), every)}, []*policy.Service{aService(t, "shop", "web", "tcp/80=http tcp/81=8081")}, "tcp"},
		"no such Service":              {[]v1alpha1.EgressRule{on(aRule(web), tcp(80))}, []*policy.Service{aService(t, "shop", "shop", "tcp/80=8080"), aService(t, "web", "web", "tcp/80=8080")}, "tcp/80"},
		"a name of no Service":         {[]v1alpha1.EgressRule{on(aRule("web", "web.shop", "web.shop.svc", "web.shop.svc.other.local", "a.web.shop.svc.cluster.local"), tcp(80))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080")}, "tcp/80"},
		"the ports of the rule's name": {[]v1alpha1.EgressRule{on(aRule(web), tcp(80)), on(aRule("db.shop.svc.cluster.local"), tcp(81))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080 tcp/81=8081")}, "tcp/80-81,tcp/8080"},
		"a pattern of a namespace":     {[]v1alpha1.EgressRule{on(aRule("*.shop.svc.cluster.local"), tcp(80))}, []*policy.Service{aService(t, "bank", "web", "tcp/80=9090"), aService(t, "shop", "web", "tcp/80=8080")}, "tcp/80,tcp/8080"},
		"a pattern of everything":      {[]v1alpha1.EgressRule{on(aRule("*"), tcp(80))}, []*policy.Service{aService(t, "bank", "web", "tcp/80=9090")}, "tcp/80,tcp/9090"},
		"a deep pattern":               {[]v1alpha1.EgressRule{on(aRule("**.local"), tcp(80))}, []*policy.Service{aService(t, "bank", "web", "tcp/80=9090")}, "tcp/80,tcp/9090"},
		"a pattern of elsewhere":       {[]v1alpha1.EgressRule{on(aRule("*.*.svc.cluster.test", "**.a.b.svc.cluster.local", "*.svc.cluster.local", "**.pod.cluster.local"), tcp(80))}, []*policy.Service{aService(t, "a", "b", "tcp/80=9090")}, "tcp/80"},
		"both, with their own ports":   {[]v1alpha1.EgressRule{on(aRule(web), tcp(80)), on(aRule("*.*.svc.cluster.local"), tcp(81))}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080 tcp/81=8081")}, "tcp/80-81,tcp/8080-8081"},
		"a rule of no ports":           {[]v1alpha1.EgressRule{on(aRule(web), v1alpha1.Port{Port: ptr(int32(0))})}, []*policy.Service{aService(t, "shop", "web", "tcp/80=8080")}, ""},
		"an odd name of a Service":     {[]v1alpha1.EgressRule{on(aRule("*.b.shop.svc.cluster.local", web), tcp(80))}, []*policy.Service{aService(t, "shop", "a.b", "tcp/80=8080"), aService(t, "shop", "", "tcp/80=8081")}, "tcp/80"},
	} {
		p := aPolicy("p", "", c.rules...)
		ports, left := PodPortsOf(&p, NewNamedServices(policytest.Name("cluster.local"), c.services))
		if got := podPorts(ports); got != c.want || left != 0 {
			t.Errorf("%s: %q and %d left out, want %q", name, got, left, c.want)
		}
		if ports, _ := PodPortsOf(&p, NewNamedServices("", c.services)); ports.Numbers != fqdnnp.Read(&p).EgressPorts() || len(ports.Names) > 0 {
			t.Errorf("%s: without a domain %q", name, podPorts(ports))
		}
	}
}

// TestGreedyServices: Services with many ports take no room of Services of the policy's
// own namespace, nor of Services that it names.
func TestGreedyServices(t *testing.T) {
	var ports strings.Builder
	for i := range 3 * MaxTargetPorts {
		fmt.Fprintf(&ports, " tcp/%d=%d", 1+i, 2000+i)
	}
	low := v1alpha1.Port{Protocol: ptr(v1alpha1.ProtocolTCP), Port: ptr(int32(1)), EndPort: ptr(int32(1000))}
	p := aPolicy("p", "", on(aRule("*.*.svc.cluster.local", "api.base.svc.cluster.local"), low))
	greedy := aService(t, "aaa", "aaa", ports.String())
	own, named := aService(t, "shop", "web", "tcp/80=60000 tcp/81=http"), aService(t, "base", "api", "tcp/443=60001 tcp/81=http")
	domain := policytest.Name("cluster.local")
	got, left := PodPortsOf(&p, NewNamedServices(domain, []*policy.Service{greedy, named, own}))
	again, _ := PodPortsOf(&p, NewNamedServices(domain, []*policy.Service{own, named, greedy}))
	if want := fmt.Sprintf("tcp/1-1000,tcp/2000-%d,tcp/60000-60001 tcp/http", 2000+MaxTargetPorts-4); podPorts(got) != want || podPorts(again) != want {
		t.Errorf("%q, then %q, want %q", podPorts(got), podPorts(again), want)
	}
	if want := 2*MaxTargetPorts + 3; left != want {
		t.Errorf("%d left out, want %d", left, want)
	}
	narrow := aPolicy("p", "", on(aRule("*.shop.svc.cluster.local"), low))
	if got, left := PodPortsOf(&narrow, NewNamedServices(domain, []*policy.Service{greedy, named, own})); podPorts(got) != "tcp/1-1000,tcp/60000 tcp/http" || left != 0 {
		t.Errorf("a policy of names of its own: %q and %d left out", podPorts(got), left)
	}
}

// twinPodPorts says the same the long way: every match of every rule is tried on every
// port of every Service.
func twinPodPorts(t *testing.T, p *v1alpha1.FQDNNetworkPolicy, services []*policy.Service) (string, int) {
	open := fqdnnp.Read(p).EgressPorts()
	var matches []*policy.Match
	for _, r := range fqdnnp.Read(p).Rules {
		matches = append(matches, r.Matches...)
	}
	type found struct {
		rank   int
		target policy.ServicePort
	}
	all := map[policy.ServicePort]int{}
	for _, s := range services {
		name := policytest.Name(s.Ref.Name + "." + s.Ref.Namespace + ".svc.cluster.local")
		for _, m := range matches {
			for _, port := range s.Ports {
				to := policy.ServicePort{Protocol: port.Protocol, Target: port.Target, TargetName: port.TargetName}
				all65535 := slices.Contains(strings.Split(string(open), ","), port.Protocol.String())
				if !m.Pattern.Matches(name) || !m.Ports.Contains(port.Protocol, port.Port) || open == policy.AnyPort || all65535 ||
					port.TargetName == "" && open.Contains(port.Protocol, port.Target) {
					continue
				}
				rank := 3
				if exact := slices.ContainsFunc(p.Spec.Egress, func(r v1alpha1.EgressRule) bool {
					return len(r.Matches) > 0 && slices.ContainsFunc(r.Matches, func(m v1alpha1.Match) bool {
						text := m.Name
						if text == nil {
							text = m.Pattern
						}
						return *text == name.String()
					})
				}); exact {
					rank = 2
				}
				if s.Ref.Namespace == p.Namespace {
					rank = 1
				}
				if last, known := all[to]; !known || rank < last {
					all[to] = rank
				}
			}
		}
	}
	var order []found
	for to, rank := range all {
		order = append(order, found{rank, to})
	}
	key := func(f found) string {
		return fmt.Sprintf("%d %03d %05d %s", f.rank, f.target.Protocol, f.target.Target, f.target.TargetName)
	}
	slices.SortFunc(order, func(a, b found) int { return strings.Compare(key(a), key(b)) })
	left := max(0, len(order)-MaxTargetPorts)
	var out PodPorts
	ranges := open.Ranges()
	for _, f := range order[:len(order)-left] {
		if f.target.TargetName != "" {
			out.Names = append(out.Names, PortName{f.target.Protocol, f.target.TargetName})
			continue
		}
		ranges = append(ranges, policy.PortRange{Protocol: f.target.Protocol, First: f.target.Target, Last: f.target.Target})
	}
	slices.SortFunc(out.Names, func(a, b PortName) int {
		return strings.Compare(fmt.Sprintf("%03d %s", a.Protocol, a.Name), fmt.Sprintf("%03d %s", b.Protocol, b.Name))
	})
	out.Numbers = policy.NewPortSet(ranges...)
	return podPorts(out), left
}

func randomServices(t *testing.T, rng *rand.Rand, most int) (out []*policy.Service) {
	protocols := []string{"tcp", "udp"}
	for _, namespace := range []string{"base", "shop", "zoo"} {
		for _, name := range []string{"api", "db", "web"} {
			var ports []string
			for range rng.IntN(most) {
				to := fmt.Sprint(1 + rng.IntN(8*most))
				if rng.IntN(3) == 0 {
					to = fmt.Sprint("n", to)
				}
				ports = append(ports, fmt.Sprintf("%s/%d=%s", protocols[rng.IntN(2)], 1+rng.IntN(most), to))
			}
			if rng.IntN(4) > 0 {
				out = append(out, aService(t, namespace, name, strings.Join(ports, " ")))
			}
		}
	}
	return out
}

// TestPodPortsAgainstTheTwin: over random policies, while random Services change.
func TestPodPortsAgainstTheTwin(t *testing.T) {
	texts := []string{"api.base.svc.cluster.local", "web.shop.svc.cluster.local", "web.*.svc.cluster.local", "*.shop.svc.cluster.local", "*b.*o*.svc.*.local",
		"**.base.svc.cluster.local", "**.svc.cluster.local", "*", "*.*", "x.test", "*.*.pod.cluster.local", "**.a.b.c.d.e.local", "web.shop", "**.cluster.local"}
	named, cut, added := 0, 0, 0
	rounds := short.Rounds(60, 200, 2_000)
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(11, seed))
		most := []int{4, 12, 200}[rng.IntN(3)]
		var rules []v1alpha1.EgressRule
		for range 1 + rng.IntN(3) {
			var some []string
			for range 1 + rng.IntN(3) {
				some = append(some, texts[rng.IntN(len(texts))])
			}
			var ports []v1alpha1.Port
			for range rng.IntN(4) {
				p := v1alpha1.Port{Protocol: ptr([]v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP, v1alpha1.ProtocolALL}[rng.IntN(3)])}
				if first := int32(1 + rng.IntN(most)); rng.IntN(12) > 0 {
					p.Port = ptr(first)
					if rng.IntN(3) == 0 {
						p.EndPort = ptr(first + int32(rng.IntN(most)))
					}
				}
				ports = append(ports, p)
			}
			if len(ports) > 0 || rng.IntN(10) == 0 {
				rules = append(rules, on(aRule(some...), ports...))
			}
		}
		p := aPolicy("p", "", rules...)
		services := randomServices(t, rng, most)
		index := NewNamedServices(policytest.Name("cluster.local"), services)
		kept := NewTargetPorts(&p, index.Domain())
		for range 6 {
			want, wantLeft := twinPodPorts(t, &p, services)
			once, left := PodPortsOf(&p, index)
			if got := podPorts(once); got != want || left != wantLeft {
				t.Fatalf("seed %d: %q and %d left out, want %q and %d", seed, got, left, want, wantLeft)
			}
			if rng.IntN(4) > 0 { // else some changes are missed
				ports, left := kept.Bring(index)
				if got := podPorts(ports); got != want || left != wantLeft {
					t.Fatalf("seed %d: kept is %q and %d left out, want %q and %d", seed, got, left, want, wantLeft)
				}
			}
			if want != string(fqdnnp.Read(&p).EgressPorts()) {
				added++
			}
			if len(once.Names) > 0 {
				named++
			}
			if wantLeft > 0 {
				cut++
			}
			services = changedServices(t, rng, services, most)
			index = index.Next(services)
		}
	}
	if added < rounds*5/2 || named < rounds*3/2 || cut < rounds/4 {
		t.Errorf("%d with more ports, %d with names, %d cut: that says little", added, named, cut)
	}
}

// changedServices returns services with some gone, come or changed; the others keep
// their pointers.
func changedServices(t *testing.T, rng *rand.Rand, services []*policy.Service, most int) []*policy.Service {
	var out []*policy.Service
	fresh := randomServices(t, rng, most)
	for _, s := range services {
		i := slices.IndexFunc(fresh, func(f *policy.Service) bool { return f.Ref == s.Ref })
		switch n := rng.IntN(8); {
		case n == 0:
		case n == 1 && i >= 0:
			out = append(out, fresh[i])
		default:
			out = append(out, s)
		}
	}
	for _, f := range fresh {
		if rng.IntN(8) == 0 && !slices.ContainsFunc(out, func(s *policy.Service) bool { return s.Ref == f.Ref }) {
			out = append(out, f)
		}
	}
	return out
}

// BenchmarkTargetPorts is the elected agent's work for 1,000 policies in a cluster with
// 5,000 Services: a tenth of the policies matches any name.
func BenchmarkTargetPorts(b *testing.B) {
	var services []*policy.Service
	for i := range 5000 {
		services = append(services, aService(b, fmt.Sprint("ns-", i%500), fmt.Sprint("svc-", i), "tcp/80=8080 tcp/443=8443 tcp/9090=metrics"))
	}
	policies := make([]v1alpha1.FQDNNetworkPolicy, 1000)
	for i := range policies {
		names := []string{fmt.Sprintf("svc-%d.ns-%d.svc.cluster.local", i, i%500), "*.example.org", "www.example.org"}
		switch {
		case i%10 == 0:
			names = append(names, "*")
		case i%10 < 4:
			names = append(names, fmt.Sprintf("*.ns-%d.svc.cluster.local", i%500))
		}
		policies[i] = aPolicy(fmt.Sprint("p-", i), "", on(aRule(names...), tcp(443)))
	}
	domain := policytest.Name("cluster.local")
	index := NewNamedServices(domain, services)
	fresh := func() (all []*TargetPorts) {
		for i := range policies {
			all = append(all, NewTargetPorts(&policies[i], domain))
		}
		return all
	}
	all := fresh()
	bring := func(b *testing.B) {
		for _, t := range all {
			if ports, _ := t.Bring(index); ports.Numbers == "" {
				b.Fatal("nothing is open")
			}
		}
	}
	b.Run("newly elected", func(b *testing.B) {
		for b.Loop() {
			all = fresh()
			bring(b)
		}
	})
	b.Run("nothing changed", func(b *testing.B) {
		for b.Loop() {
			bring(b)
		}
	})
	for name, ports := range map[string]string{"a Service that matters to none": "tcp/80=8081", "a Service that matters": "tcp/443=8444"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				index = index.Next(append(slices.Clone(services), aService(b, "new", "new", ports)))
				bring(b)
			}
		})
	}
}
