package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/bench/child"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// maxPods is how many pods each node has; how many of them are selected differs.
	maxPods = 250
	// client is the pod that sends, in the middle of the pods: not the first of any chain.
	client, clientNumber = "client", maxPods / 2
	// sinkPort is the first port of the sink.
	sinkPort, sinkPorts = 8010, 4
	// firstPod is the last byte of the first pod's address.
	firstPod = 2
)

// Where the client connects to.
var (
	target4 = netip.MustParseAddr("198.51.100.10")
	target6 = netip.MustParseAddr("2001:db8:5::10")
)

// node is a node with maxPods pods, one of which can send, and a sink behind it.
type node struct {
	*lab.Lab
	// dir is a folder of the node's, removed with it.
	dir   string
	sink  *child.Child
	agent *lab.Agent
	world *lab.Outside
}

// newNode builds a node, for agents with a dataplane. links joins the pods beside the client,
// else their addresses are added to the client's host.
func (b *bench) newNode(name, dataplane string, links bool) *node {
	b.Note("building the node %s%s with %d pods", name, dataplane, maxPods)
	n := &node{dir: filepath.Join(b.Dir, name+dataplane)}
	fatal.If(b, os.MkdirAll(n.dir, 0o755))
	var err error
	n.Lab, err = lab.New(lab.Routed)
	fatal.If(b, err)
	b.Cleanup(n.remove)
	n.Dataplane = dataplane
	others := n.impersonate
	if links {
		others = n.addPods
	}
	b.build(n, others)
	return n
}

func (b *bench) build(n *node, others func() error) {
	_, err := n.AddPod(client, firstPod+clientNumber)
	fatal.If(b, err)
	fatal.If(b, n.Ready())
	fatal.If(b, others())
	// What has ended is forgotten at once: the table of connections is no part of what is
	// measured.
	fatal.If(b, n.Node.Sysctl("net.netfilter.nf_conntrack_tcp_timeout_close=1", "net.netfilter.nf_conntrack_tcp_timeout_time_wait=1"))
	n.sink, err = child.Self(n.World, n.dir, "sink", "sink", fmt.Sprint(sinkPort))
	fatal.If(b, err)
	for i := range uint16(sinkPorts) {
		b.listening(n, sinkPort+i)
	}
}

// sinkLimit is how long the sink may need until it listens.
const sinkLimit = lab.Limit

// listening waits until the sink listens on a port.
func (b *bench) listening(n *node, port uint16) {
	for until := time.Now().Add(sinkLimit); ; time.Sleep(time.Millisecond) {
		fatal.If(b, n.sink.Failed())
		if c, err := n.World.Dial("tcp", netip.AddrPortFrom(target4, port).String(), time.Second); err == nil {
			fatal.If(b, c.Close())
			return
		}
		if time.Now().After(until) {
			b.Fatal(fmt.Errorf("the sink does not listen on port %d", port))
		}
	}
}

// addPods adds the other pods: links with routes as each pod has, without hosts behind
// them.
func (n *node) addPods() error {
	var lines strings.Builder
	for i := range maxPods {
		if i == clientNumber {
			continue
		}
		a4, a6 := podAddrs(i)
		fmt.Fprintf(&lines, "link add veth%[1]d type veth peer name peer%[1]d\nlink set veth%[1]d up\nlink set peer%[1]d up\n", firstPod+i)
		fmt.Fprintf(&lines, "route add %s/32 dev veth%d\nroute add %s/128 dev veth%d\n", a4, firstPod+i, a6, firstPod+i)
	}
	return n.Node.Pipe(lines.String(), "ip", "-batch", "-")
}

func podAddrs(i int) (a4, a6 netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 1, 0, byte(firstPod + i)}), netip.MustParseAddr(fmt.Sprintf("fd00:1::%x", firstPod+i))
}

func (n *node) remove() error {
	var errs []error
	if n.agent != nil {
		errs = append(errs, n.agent.Stop(syscall.SIGKILL))
	}
	if n.world != nil {
		n.world.Close()
	}
	if n.sink != nil {
		errs = append(errs, n.sink.Stop())
	}
	return errors.Join(append(errs, n.Remove(), os.RemoveAll(n.dir))...)
}
