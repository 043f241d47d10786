package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/e2e/bench/child"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// direct is the same node, and a plain rule for another port.
	direct = "direct"
	// goRelay is a node without rules that leads connections to a relay in Go, which copies them unread.
	goRelay = "go-relay"

	// greeterPort is the port of a plain rule, checkedPort that of one that requires the server name.
	greeterPort, checkedPort = sinkPort + sinkPorts, sinkPort + sinkPorts + 30
	serverName               = "www.checked.bench.test"
	// relayAt is where goRelay's node leads connections.
	relayAt = "192.0.2.200:7000"
	// pause is between connections whose first byte is timed: as of a client that is not busy.
	pause = time.Millisecond
	// relayed is how many connections are open where memory is measured.
	relayed = 1000
)

var serverNamePolicy = fmt.Sprintf(`---
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: checked, namespace: shop}
spec:
  podSelector: {matchLabels: {selected: "true"}}
  egress:
  - matches: [{name: %s}]
    ports: [{protocol: TCP, port: %d}]
    serverName: Require
`, serverName, checkedPort)

// way is how connections go.
type way struct {
	name  string
	node  *node
	port  int
	relay int // the process that relays, 0 for none
}

// serverNames measures what the relay costs connections whose server name is checked.
func (b *bench) serverNames() {
	own, plain := b.newNode("servername-", "nftables", true), b.newNode("servername-", goRelay, true)
	var err error
	own.world, err = own.ServeWorld(answer)
	fatal.If(b, err)
	m := manifests(chosen(flowPods))
	m["policies.yaml"] += serverNamePolicy
	b.enforce(own, m, func(s lab.Status) bool { return s.InSync && s.Enforcer.Selected == flowPods })
	b.resolve(own)
	b.Resolve(own.Pod(client).Host, resolver, serverName, 1)
	fatal.If(b, plain.track())
	_, err = plain.Node.Run("ip", "addr", "add", netip.MustParseAddrPort(relayAt).Addr().String()+"/32", "dev", "lo")
	fatal.If(b, err)
	_, err = plain.Node.Run("nft", fmt.Sprintf("add table ip led; add chain ip led prerouting { type nat hook prerouting priority -101; }; "+
		"add rule ip led prerouting ip daddr %s tcp dport %d dnat to %s", target4, checkedPort, relayAt))
	fatal.If(b, err)
	relay, err := child.Self(plain.Node, plain.dir, "relay", "relay", relayAt, netip.AddrPortFrom(target4, checkedPort).String())
	fatal.If(b, err)
	b.Cleanup(relay.Stop)
	for _, n := range []*node{own, plain} {
		c, err := child.Self(n.World, n.dir, "greeter", "greeter", fmt.Sprint(greeterPort), fmt.Sprint(checkedPort))
		fatal.If(b, err)
		b.Cleanup(c.Stop)
		b.listening(n, greeterPort)
		b.listening(n, checkedPort)
	}
	pid, err := process.Listener(own.agent.Socket())
	fatal.If(b, err)
	ways := []way{
		{"checked", own, checkedPort, pid},
		{direct, own, greeterPort, 0},
		{goRelay, plain, checkedPort, relay.PID()},
	}
	b.firstBytes(ways)
	b.relayedStream(ways)
	b.relayedMemory(ways)
}

// rounds runs each way once a round, in rotating order.
func (b *bench) rounds(ways []way, measure func(way)) {
	for round := range b.Rounds {
		for i := range ways {
			measure(ways[(round+i)%len(ways)])
		}
	}
}

// firstBytes measures the time from connect to the first byte, and the processor time of who relays it.
func (b *bench) firstBytes(ways []way) {
	times, cost := map[string][]float64{}, map[string]figure.Series{}
	var others figure.Series
	b.rounds(ways, func(w way) {
		meter := b.NewMeter(w.relay)
		out, used := b.child(w.node.Pod(client).Host, nil, "greet", netip.AddrPortFrom(target4, uint16(w.port)).String(), b.Span.String())
		cpu, o := meter.End(used)
		others = append(others, figure.Reading{Others: o})
		cost[w.name] = append(cost[w.name], figure.Reading{Value: cpu.Seconds() * 1e6 / float64(bytes.Count(out, []byte("\n"))), Others: o})
		for line := range strings.Lines(string(out)) {
			v, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
			fatal.If(b, err)
			times[w.name] = append(times[w.name], v)
		}
	})
	for _, all := range times {
		slices.Sort(all)
	}
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		for _, peer := range []string{direct, goRelay} {
			f := figure.Figure{Name: "servername.first_byte_" + q.name + "_us", Value: figure.Quantile(times["checked"], q.at), Unit: "us"}.Against(peer, figure.Quantile(times[peer], q.at))
			b.Note("%s: %.4g, %s %.4g", f.Name, f.Value, f.Peer, f.PeerValue)
			b.Report(f, others.Others())
		}
	}
	b.compare("servername.connection_cpu_us", "us", goRelay, cost)
}

// relayedStream measures one connection at full speed, and the processor time of who relays it.
func (b *bench) relayedStream(ways []way) {
	speed, cost := map[string]figure.Series{}, map[string]figure.Series{}
	b.rounds(ways, func(w way) {
		meter := b.NewMeter(w.relay)
		out, used := b.child(w.node.Pod(client).Host, nil, "pour", netip.AddrPortFrom(target4, uint16(w.port)).String(), b.Span.String(), "1")
		var done, nanoseconds float64
		_, err := fmt.Sscan(string(out), &done, &nanoseconds)
		fatal.If(b, err)
		cpu, others := meter.End(used)
		speed[w.name] = append(speed[w.name], figure.Reading{Value: done / nanoseconds * 8, Others: others})
		cost[w.name] = append(cost[w.name], figure.Reading{Value: cpu.Seconds() * 1000 / (done / (1 << 30)), Others: others})
	})
	for _, peer := range []string{direct, goRelay} {
		b.compare("servername.throughput_gbps", "Gbit/s", peer, speed)
	}
	b.compare("servername.cpu_ms_per_gib", "ms", goRelay, cost)
}

func (b *bench) compare(name, unit, peer string, of map[string]figure.Series) {
	own, p := of["checked"], of[peer]
	f := figure.Figure{Name: name, Value: own.Median(), Unit: unit}.Against(peer, p.Median())
	b.Note("%s: %.4g, %s %.4g: %.3f", f.Name, f.Value, f.Peer, f.PeerValue, f.Ratio)
	b.Report(f, max(own.Others(), p.Others()))
}

// relayedMemory measures the resident memory of an open connection.
func (b *bench) relayedMemory(ways []way) {
	each := map[string]figure.Series{}
	for _, w := range ways {
		if w.relay == 0 {
			continue
		}
		before, err := process.RSS(w.relay)
		fatal.If(b, err)
		c, err := child.Self(w.node.Pod(client).Host, w.node.dir, "hold", "hold", netip.AddrPortFrom(target4, uint16(w.port)).String(), fmt.Sprint(relayed))
		fatal.If(b, err)
		time.Sleep(3 * time.Second)
		fatal.If(b, c.Failed())
		after, err := process.RSS(w.relay)
		fatal.If(b, err)
		fatal.If(b, c.Stop())
		each[w.name] = figure.Series{{Value: (after - before) * 1024 / relayed}}
	}
	b.compare("servername.memory_kib", "KiB", goRelay, each)
}

// helloBytes is a ClientHello with serverName.
func helloBytes() ([]byte, error) {
	a, z := net.Pipe()
	go func() {
		_ = tls.Client(a, &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS13}).Handshake()
		_ = a.Close()
	}()
	b := make([]byte, 1<<14)
	n, err := z.Read(b)
	return b[:n], errors.Join(err, z.Close())
}

// greet connects with a hello, and waits for the first byte.
func greet(at string, hello []byte) (*net.TCPConn, error) {
	c, err := net.DialTimeout("tcp", at, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err = c.Write(hello); err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	_ = c.SetDeadline(time.Time{})
	return c.(*net.TCPConn), err
}

// greetings prints how many microseconds each connection took to its first byte.
func greetings(args []string) error {
	span, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	hello, err := helloBytes()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(pause) {
		begin := time.Now()
		c, err := greet(args[0], hello)
		if err != nil {
			return fmt.Errorf("greet %s: %w", args[0], err)
		}
		fmt.Fprintln(&out, float64(time.Since(begin))/1000)
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	_, err = out.WriteTo(os.Stdout)
	return err
}

// pour sends over one connection as fast as it can be sent, behind a hello.
func pour(at netip.AddrPort, ready func(), over *atomic.Bool, done *atomic.Int64) error {
	hello, err := helloBytes()
	if err != nil {
		return err
	}
	c, err := greet(at.String(), hello)
	if err != nil {
		return err
	}
	defer c.Close()
	ready()
	for buf := make([]byte, 128<<10); !over.Load(); {
		n, err := c.Write(buf)
		if err != nil {
			return err
		}
		done.Add(int64(n))
	}
	return nil
}

// hold keeps connections open until it is killed.
func hold(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	hello, err := helloBytes()
	if err != nil {
		return err
	}
	var open []net.Conn
	for range n {
		c, err := greet(args[0], hello)
		if err != nil {
			return err
		}
		open = append(open, c)
	}
	time.Sleep(time.Hour)
	return open[0].Close()
}

// greeter answers the first bytes of each connection to its ports with one, and reads the others.
func greeter(ports []string) error {
	failed := make(chan error)
	for _, port := range ports {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					failed <- err
					return
				}
				go func() {
					defer c.Close()
					buf := make([]byte, 128<<10)
					if _, err := c.Read(buf); err != nil {
						return
					}
					_, _ = c.Write(append([]byte{21}, make([]byte, 6)...))
					for err := error(nil); err == nil; {
						_, err = c.Read(buf)
					}
				}()
			}
		}()
	}
	return <-failed
}

// relay copies connections unread.
func relay(args []string) error {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			s, err := net.Dial("tcp", args[1])
			if err != nil {
				return
			}
			defer s.Close()
			go func() {
				_, _ = io.Copy(s, c)
				_ = s.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(c, s)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
	}
}
