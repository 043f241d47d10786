package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/namegate/namegate/e2e/bench/child"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// peers is a node without the agent where the peers run, and an upstream.
type peers struct {
	*lab.Lab
	upstream *child.Child
	dir      string
	servers  []target
	children []*child.Child
}

// peerAddr is the node's address at which the peers serve.
var peerAddr = netip.MustParseAddr("169.254.20.53")

// The peers. Each is a process of its own.
const (
	udpEcho          = "udp-echo"
	corednsCache     = "coredns-cache"
	corednsForward   = "coredns-forward"
	dnsmasqCache     = "dnsmasq-cache"
	dnsmasqIPSet     = "dnsmasq-ipset"
	setOfDnsmasq     = "dnsmasq"
	firstPeerPort    = 5301
	dnsmasqCacheSize = 10_000
)

// rivals returns peers by name; they are started once.
func (b *bench) rivals(names ...string) (out []target) {
	b.startPeers()
	for _, name := range names {
		out = append(out, b.server(name))
	}
	return out
}

func (b *bench) startPeers() {
	if b.peers != nil {
		return
	}
	p := &peers{dir: filepath.Join(b.Dir, "peers")}
	b.peers = p
	fatal.If(b, os.Mkdir(p.dir, 0o755))
	var err error
	p.Lab = b.newLab()
	fatal.If(b, p.Node.IP("addr", "add", peerAddr.String()+"/32", "dev", "lo", "scope", "host"))
	p.upstream, err = child.Self(p.World, p.dir, "upstream", serveWord, "upstream", resolver.String())
	fatal.If(b, err)
}

// server returns a peer that runs, starting it if it does not.
func (b *bench) server(name string) target {
	p := b.peers
	for _, t := range p.servers {
		if t.name == name {
			return t
		}
	}
	at := netip.AddrPortFrom(peerAddr, uint16(firstPeerPort+len(p.servers)))
	c, err := p.start(name, b.coredns, at)
	fatal.If(b, err)
	t := target{name: name, pid: c.PID(), pod: p.Pod(client).Host, at: at}
	p.children = append(p.children, c)
	p.servers = append(p.servers, t)
	return t
}

func (p *peers) start(name, coredns string, at netip.AddrPort) (*child.Child, error) {
	switch name {
	case udpEcho:
		return child.Self(p.Node, p.dir, "echo", serveWord, "echo", at.String())
	case corednsCache:
		return p.coredns(coredns, name, at, "cache 3600")
	case corednsForward:
		return p.coredns(coredns, name, at, "")
	case dnsmasqCache:
		return p.dnsmasq(name, at, "--cache-size="+strconv.Itoa(dnsmasqCacheSize))
	case dnsmasqIPSet:
		// As large as the agent's own sets together; nothing ever leaves it but by time.
		if _, err := p.Node.Run("ipset", "create", setOfDnsmasq, "hash:ip", "timeout", "600", "maxelem", "1048576"); err != nil {
			return nil, err
		}
		return p.dnsmasq(name, at, "--cache-size=0", "--ipset=/bench.test/"+setOfDnsmasq)
	}
	return nil, fmt.Errorf("no peer is called %s", name)
}

func (p *peers) coredns(program, name string, at netip.AddrPort, cache string) (*child.Child, error) {
	file := filepath.Join(p.dir, name+".Corefile")
	text := fmt.Sprintf(".:%d {\n    bind %s\n    forward . %s\n    %s\n}\n", at.Port(), at.Addr(), lab.Resolver4, cache)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return child.Spawn(p.Node, p.dir, name, program, "-conf", file)
}

func (p *peers) dnsmasq(name string, at netip.AddrPort, more ...string) (*child.Child, error) {
	args := append([]string{
		"--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=" + filepath.Join(p.dir, name+".pid"),
		"--bind-interfaces", "--listen-address=" + at.Addr().String(), "--port=" + strconv.Itoa(int(at.Port())),
		"--server=" + lab.Resolver4.String(), "--dns-forward-max=10000",
	}, more...)
	return child.Spawn(p.Node, p.dir, name, "dnsmasq", args...)
}

// failed returns the error of a peer that ended, nil while all run.
func (p *peers) failed() error {
	for _, c := range append(p.children, p.upstream) {
		if err := c.Failed(); err != nil {
			return err
		}
	}
	return nil
}

func (p *peers) remove() error {
	var errs []error
	for _, c := range p.children {
		errs = append(errs, c.Stop())
	}
	if p.upstream != nil {
		errs = append(errs, p.upstream.Stop())
	}
	if p.Lab != nil {
		errs = append(errs, p.Remove())
	}
	return errors.Join(errs...)
}
