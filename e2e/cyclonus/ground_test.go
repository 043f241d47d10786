package cyclonus

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const corefile = `
. {
    forward . 192.0.2.53 2001:db8::53
    cluster cluster.local 10.1.0.0/24 fd00:1::/64
    intercept 10.1.0.200 fd00:1::c8
    audit AUDIT
}
`

// ground is two nodes with an agent each, so that every pod is on an agent's node and
// every pair of pods except those of one node is on two nodes.
type ground struct {
	t     *testing.T
	nodes [2]*node
	// binary is the agent's.
	binary string
	pods   map[string]*sited // by "namespace/name"
	last   int               // number of the last pod of a case
	inbox  inbox
}

type node struct {
	*lab.Lab
	name  string
	agent *lab.Agent
	// far is the other node's end of the link.
	far4, far6 string
	applied    string
}

// sited is a pod with its node and its manifest.
type sited struct {
	*lab.Pod
	node               *node
	key                string
	service4, service6 netip.Addr
	servers            []func() error
	ports              atomic.Uint32 // source ports so far
}

// newGround builds both nodes, their link and their translation of Services.
func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{t: t, last: 10, pods: map[string]*sited{}, inbox: inbox{waiting: map[string]chan string{}}}
	binary := filepath.Join(t.TempDir(), "namegate")
	build := exec.Command("go", "build", "-o", binary, "./cmd/namegate")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	for i := range g.nodes {
		l, err := lab.New(lab.Routed)
		fatal.If(t, err)
		t.Cleanup(func() {
			if err := l.Remove(); err != nil {
				t.Error(err)
			}
		})
		n := &node{Lab: l, name: fmt.Sprintf("node-%d", i), far4: fmt.Sprintf("192.168.99.%d", 2-i), far6: fmt.Sprintf("fd00:99::%d", 2-i)}
		g.nodes[i] = n
		outside, err := l.ServeWorld(resolved)
		fatal.If(t, err)
		t.Cleanup(outside.Close)
		dir := filepath.Join(t.TempDir(), n.name)
		fatal.If(t, os.MkdirAll(dir, 0o755))
		if n.agent, err = l.NewAgent(binary, dir, corefile); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the log of %s:\n%s", n.name, n.agent.Log())
			}
			if err := n.agent.Stop(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		})
	}
	g.binary = binary
	g.link()
	p, err := g.addPod(resolver, resolverNumber)
	fatal.If(t, err)
	for _, a := range []netip.Addr{p.Addr4, p.Addr6} {
		o, err := p.ServeDNS(netip.AddrPortFrom(a, 53), resolved)
		fatal.If(t, err)
		t.Cleanup(o.Close)
	}
	return g
}

func (g *ground) link() {
	g.t.Helper()
	a, b := g.nodes[0], g.nodes[1]
	steps := []error{a.Node.IP(strings.Fields("link add far0 type veth peer name far0 netns " + b.Node.Name)...)}
	for i, n := range g.nodes {
		for _, line := range []string{
			fmt.Sprintf("addr add 192.168.99.%d/24 dev far0", 1+i), fmt.Sprintf("addr add fd00:99::%d/64 dev far0 nodad", 1+i), "link set far0 up",
		} {
			steps = append(steps, n.Node.IP(strings.Fields(line)...))
		}
		// Every refusal has to be told, however many there are in a second: no type of
		// message is bounded that is sent here.
		steps = append(steps, n.Node.Sysctl("net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratemask=127"), n.pipe(services))
	}
	fatal.If(g.t, errors.Join(steps...))
}

// services translates the addresses of Services, each of one pod, on the ports that
// the pods serve.
const services = `
table inet services {
	map v4 { type ipv4_addr : ipv4_addr; }
	map v6 { type ipv6_addr : ipv6_addr; }
	chain prerouting {
		type nat hook prerouting priority dstnat;
		meta l4proto { tcp, udp, sctp } th dport { 80, 81 } dnat ip to ip daddr map @v4
		meta l4proto { tcp, udp, sctp } th dport { 80, 81 } dnat ip6 to ip6 daddr map @v6
	}
}
`

// pipe gives a text to nft on the node.
func (n *node) pipe(text string) error {
	_, err := n.Node.Run("sh", "-c", "nft -f - <<'E'\n"+text+"\nE")
	return err
}

// start starts agents in place of the ones that run; they are killed at the end.
func (g *ground) start(files map[string]string, enforce bool) {
	g.t.Helper()
	for _, n := range g.nodes {
		args := []string{"--node-name", n.name}
		if enforce {
			args = append(args, "--enforce-network-policies")
		}
		fatal.If(g.t, errors.Join(n.agent.Stop(syscall.SIGTERM), n.Ready(), n.agent.Write(files)))
		n.applied = files["cluster.yaml"]
		n.agent.Use(g.binary, args...)
		fatal.If(g.t, n.agent.Start())
	}
}

// apply gives both agents one file and waits until a snapshot with it is in force.
func (g *ground) apply(text string) error {
	ends := make(chan error, len(g.nodes))
	for _, n := range g.nodes {
		go func() {
			if n.applied == text {
				ends <- nil
				return
			}
			n.applied = text
			ends <- n.agent.Apply(map[string]string{"cluster.yaml": text})
		}()
	}
	var errs []error
	for range g.nodes {
		errs = append(errs, <-ends)
	}
	return errors.Join(errs...)
}

// addPod makes a pod of a number, with its servers, a Service of its own, and routes to it.
func (g *ground) addPod(key string, i int) (*sited, error) {
	n := g.nodes[i%2]
	p, err := n.AddPod(strings.ReplaceAll(key, "/", "-"), i)
	if err != nil {
		return nil, err
	}
	s := &sited{Pod: p, node: n, key: key, service4: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), service6: netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", i))}
	g.pods[key] = s
	other := g.nodes[(i+1)%2]
	errs := []error{
		other.Node.IP("route", "add", p.Addr4.String()+"/32", "via", other.far4), other.Node.IP("-6", "route", "add", p.Addr6.String()+"/128", "via", other.far6),
		s.serve(&g.inbox), n.Ready(),
	}
	for _, n := range g.nodes {
		errs = append(errs, n.pipe(fmt.Sprintf("add element inet services v4 { %s : %s }\nadd element inet services v6 { %s : %s }", s.service4, p.Addr4, s.service6, p.Addr6)))
	}
	return s, errors.Join(errs...)
}

func (g *ground) removePod(key string) error {
	s := g.pods[key]
	delete(g.pods, key)
	other := g.nodes[0]
	if s.node == other {
		other = g.nodes[1]
	}
	var errs []error
	for _, end := range s.servers {
		errs = append(errs, end())
	}
	return errors.Join(append(errs, s.node.RemovePod(strings.ReplaceAll(key, "/", "-")),
		other.Node.IP("route", "del", s.Addr4.String()+"/32"), other.Node.IP("-6", "route", "del", s.Addr6.String()+"/128"))...)
}
