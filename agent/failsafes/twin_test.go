package failsafes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/testkit/fatal"
)

// noAnswers is a Resolver whose lookups last until they are given up.
type noAnswers struct{}

func (noAnswers) Lookup(ctx context.Context, _ string) ([]netip.Addr, time.Duration, error) {
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }

// unreadable is a link to itself.
func unreadable(name string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("/" + name), Mode: fs.ModeSymlink | 0o777}
}

// kubeconfigOf is a kubeconfig of a server.
func kubeconfigOf(server string) *fstest.MapFile {
	return file("apiVersion: v1\nkind: Config\nclusters:\n- name: k\n  cluster: {server: \"" + server + "\"}\n")
}

// wish is a wanted entry, by the fields that tell it from others.
func wish(a netip.Addr, ports policy.PortRange, reason, source string) failsafe.Entry {
	t := failsafe.Target{Ports: ports, Reason: reason, Source: source}
	return t.At(a)
}

// moment is what a twin knows of one step.
type moment struct {
	at     time.Time
	listed map[failsafe.Entry]bool // by sources that were read, and the last of others
	open   []netip.AddrPort
}

// twin repeats the retention of a Keeper from the whole history, entry by entry.
type twin struct{ history []moment }

// entries returns what is there after the last moment.
func (w *twin) entries() (out []failsafe.Entry) {
	all := map[failsafe.Entry]bool{}
	for _, m := range w.history {
		for e := range m.listed {
			all[e] = true
		}
	}
	for e := range all {
		there, gone := false, time.Time{}
		for _, m := range w.history {
			used := e.Ports.Protocol == policy.TCP && slices.ContainsFunc(m.open, func(to netip.AddrPort) bool {
				return to.Addr() == e.Prefix.Addr() && to.Port() == e.Ports.First
			})
			switch {
			case m.listed[e]:
				there, gone = true, time.Time{}
			case there && gone.IsZero():
				gone = m.at
			case there && m.at.Sub(gone) >= 24*time.Hour && !used:
				there = false
			}
		}
		if there {
			e.Gone = gone
			out = append(out, e)
		}
	}
	slices.SortFunc(out, failsafe.Compare)
	return out
}

// host is a host that changes at random, and its twin's view of it.
type host struct {
	*rand.Rand
	files  fstest.MapFS
	kernel *underlay.Fake
	state  underlay.FakeState
	// The last lists that were read.
	resolvers, time, tunnels, kubelet []failsafe.Entry
	names                             map[string][]netip.Addr // answers
	targets                           map[string]failsafe.Target
	broken                            map[string]bool // sources that cannot be read
}

func (h *host) some() (out []netip.Addr) {
	for i := range 5 {
		if h.IntN(2) == 0 {
			out = append(out, netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}))
		}
	}
	return out
}

// change changes one source.
func (h *host) change() {
	tcp, udp := failsafe.Port(policy.TCP, 53), failsafe.Port(policy.UDP, 53)
	broken := h.IntN(4) == 0
	switch h.IntN(4) {
	case 0:
		const name = "etc/resolv.conf"
		h.broken[name] = broken
		h.files[name] = unreadable(name)
		if broken {
			return
		}
		text := ""
		h.resolvers = nil
		for _, a := range append(h.some(), netip.MustParseAddr("192.0.2.9")) {
			text += "nameserver " + a.String() + "\n"
			h.resolvers = append(h.resolvers, wish(a, tcp, "resolver of the host", "/etc/resolv.conf"), wish(a, udp, "resolver of the host", "/etc/resolv.conf"))
		}
		h.files[name] = file(text)
	case 1:
		const name = "etc/chrony.conf"
		h.broken[name] = broken
		h.files[name] = unreadable(name)
		if broken {
			return
		}
		text := ""
		h.time = nil
		for _, a := range h.some() {
			text += "server " + a.String() + "\n"
			h.time = append(h.time, wish(a, failsafe.Port(policy.UDP, 123), "time", "/etc/chrony.conf"))
		}
		if h.files[name] = file(text); h.IntN(3) == 0 {
			delete(h.files, name)
			h.time = nil
		}
	case 2:
		h.broken["kernel"] = broken
		h.kernel.Fail(nil)
		if broken {
			h.kernel.Fail(errors.New("no memory"))
			return
		}
		h.tunnels, h.state.Tunnels.Peers = nil, nil
		for _, a := range h.some() {
			h.state.Tunnels.Peers = append(h.state.Tunnels.Peers, underlay.Peer{Addr: a, Protocol: 17, Port: 8472, Source: "vxlan0"})
			h.tunnels = append(h.tunnels, wish(a, failsafe.Port(policy.UDP, 8472), "tunnel peer", "vxlan0"))
		}
	case 3:
		const name = "etc/kubernetes/kubelet.conf"
		h.broken[name] = broken
		const source = "kubelet's kubeconfig /etc/kubernetes/kubelet.conf"
		if delete(h.files, name); broken {
			return // a node without a kubeconfig
		}
		h.kubelet, h.targets = nil, map[string]failsafe.Target{}
		server := []string{"192.0.2.7", "a.test", "b.test"}[h.IntN(3)]
		h.files[name] = kubeconfigOf("https://" + server + ":6443")
		ports := failsafe.Port(policy.TCP, 6443)
		if a, err := netip.ParseAddr(server); err == nil {
			h.kubelet = []failsafe.Entry{wish(a, ports, "API server", source)}
			return
		}
		h.targets[server] = failsafe.Target{Host: server, Ports: ports, Reason: "API server", Source: source}
	}
}

// listed returns what the sources list after a reading.
func (h *host) listed() map[failsafe.Entry]bool {
	out := map[failsafe.Entry]bool{}
	for _, list := range [][]failsafe.Entry{h.resolvers, h.time, h.tunnels, h.kubelet} {
		for _, e := range list {
			out[e] = true
		}
	}
	for _, t := range h.targets {
		for _, a := range h.names[t.Host] {
			out[wish(a, t.Ports, t.Reason, t.Source+", name "+t.Host)] = true
		}
	}
	return out
}

// TestTwin: at random steps of time, of sources that change, fail and vanish, of names whose
// answers change, and of connections, the Keeper has the entries of a slow twin, passes a list
// on exactly if it changed, and an outage leaves the list complete.
func TestTwin(t *testing.T) {
	for n := range 12 {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprint(n), func(t *testing.T) { runTwin(t, seed) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func runTwin(t *testing.T, seed uint64) {
	clock := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	h := &host{Rand: rand.New(rand.NewPCG(seed, 1)), files: fstest.MapFS{}, kernel: underlay.NewFake(), names: map[string][]netip.Addr{}, broken: map[string]bool{}}
	h.files["etc/resolv.conf"] = file("nameserver 192.0.2.9\n")
	h.files["etc/kubernetes/kubelet.conf"] = kubeconfigOf("https://192.0.2.7:6443")
	h.resolvers = []failsafe.Entry{wish(addrs("192.0.2.9")[0], failsafe.Port(policy.TCP, 53), "resolver of the host", "/etc/resolv.conf"), wish(addrs("192.0.2.9")[0], failsafe.Port(policy.UDP, 53), "resolver of the host", "/etc/resolv.conf")}
	h.kubelet = []failsafe.Entry{wish(addrs("192.0.2.7")[0], failsafe.Port(policy.TCP, 6443), "API server", "kubelet's kubeconfig /etc/kubernetes/kubelet.conf")}
	k, err := New(Options{Node: "n1", APIServer: "192.0.2.8:443", Host: h.files, Underlay: h.kernel, Resolver: noAnswers{}, Log: slog.New(slog.DiscardHandler), Clock: clock})
	fatal.If(t, err)
	r := newRun(k)
	ctx, cancel := context.WithCancel(t.Context())
	defer r.lookups.Wait()
	defer cancel()
	k.SetCluster(Cluster{})
	k.SetCorefile(Corefile{})
	k.take(&r.state)
	w := &twin{}
	agents := wish(addrs("192.0.2.8")[0], failsafe.Port(policy.TCP, 443), "API server", "API server of the agent")
	var last string
	for i := range 40 {
		changed := i == 0
		switch action := h.IntN(4); {
		case i == 0: // every source is read once
		case action < 2:
			h.change()
		case action == 2:
			for host := range h.targets {
				switch h.IntN(4) {
				case 0:
					r.names.answer(clock.Now(), host, nil, 0, errors.New("no answer"))
				case 1:
					r.names.answer(clock.Now(), host, nil, 0, ErrNoAddresses)
				default:
					if found := h.some(); len(found) > 0 {
						h.names[host] = found
						r.names.answer(clock.Now(), host, found, time.Minute, nil)
					}
				}
				changed = true
			}
		default:
			h.state.Connections = nil
			for _, a := range h.some() {
				h.state.Connections = append(h.state.Connections, netip.AddrPortFrom(a, 6443))
			}
		}
		h.kernel.Set(h.state, true)
		clock.Step(15*time.Second + time.Duration(h.Int64N(int64(10*time.Hour))))
		var got *failsafe.List
		r.step(ctx, changed, func(l *failsafe.List) { got = l })
		if !r.ready() {
			continue // a name without an answer: the list waits, and the last one stays
		}
		m := moment{clock.Now(), h.listed(), h.state.Connections}
		m.listed[agents] = true
		if h.broken["kernel"] { // connections that cannot be listed count as open
			m.open = everyConnection
		}
		w.history = append(w.history, m)
		compare(t, w, r.last)
		answered := true
		for name := range h.targets {
			answered = answered && h.names[name] != nil
		}
		if r.last.Complete() != answered {
			t.Fatalf("seed %d: complete %v with answers %v and the findings %v", seed, r.last.Complete(), h.names, r.last.Findings)
		}
		for source, broken := range h.broken {
			if broken != slices.ContainsFunc(r.last.Findings, func(f failsafe.Finding) bool { return f.Source == findingOf[source] }) {
				t.Fatalf("seed %d: %s is broken: %v, with the findings %v", seed, source, broken, r.last.Findings)
			}
		}
		if text := fmt.Sprint(*r.last); (text != last) != (got != nil) {
			t.Fatalf("seed %d: the list changed: %v, and was passed on: %v", seed, text != last, got != nil)
		} else {
			last = text
		}
	}
}

// findingOf has the findings' sources of files.
var findingOf = map[string]string{"etc/resolv.conf": "resolvers of the host", "etc/chrony.conf": "time servers", "kernel": "tunnels", "etc/kubernetes/kubelet.conf": "kubeconfig of the kubelet"}

// everyConnection are connections to each address of the test.
var everyConnection = func() (out []netip.AddrPort) {
	for i := range 9 {
		for _, port := range []uint16{53, 443, 6443} {
			out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), port))
		}
	}
	return out
}()

func compare(t *testing.T, w *twin, l *failsafe.List) {
	t.Helper()
	fixed := failsafe.Fixed()
	var got, want []string
	for _, e := range l.Entries {
		if !slices.Contains(fixed, e) {
			got = append(got, e.String())
		}
	}
	for _, e := range w.entries() {
		want = append(want, e.String())
	}
	if !slices.Equal(got, want) {
		t.Fatalf("step %d:\n got %s\nwant %s", len(w.history), strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}
