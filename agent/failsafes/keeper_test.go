package failsafes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/testkit/fatal"
)

// answers is a Resolver in memory.
type answers struct {
	mu    sync.Mutex
	names map[string][]netip.Addr // nil: an error
	asked map[string]int
}

func (a *answers) set(name string, addrs ...netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[name] = addrs
}

func (a *answers) Lookup(_ context.Context, name string) ([]netip.Addr, time.Duration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[name]++
	addrs, ok := a.names[name]
	switch {
	case !ok:
		return nil, 0, ErrNoAddresses
	case len(addrs) == 0:
		return nil, 0, errors.New("no answer from the resolver 192.0.2.53")
	}
	return addrs, 30 * time.Second, nil
}

// kept is a Keeper that runs.
type kept struct {
	*Keeper
	t      *testing.T
	clock  *testclock.FakeClock
	kernel *underlay.Fake
	names  *answers
	lists  chan *failsafe.List
	end    func() // has Run return
}

// start runs a Keeper on files, with resolv.conf and a kubeconfig for api.test.
func start(t *testing.T, files fstest.MapFS) *kept {
	t.Helper()
	return startWith(t, files, "", nil)
}

// startWith is start with a file for the addresses of names, and with the answers for some names.
func startWith(t *testing.T, files fstest.MapFS, addresses string, names map[string][]netip.Addr) *kept {
	t.Helper()
	all := fstest.MapFS{"etc/resolv.conf": file("nameserver 192.0.2.53\n"), "etc/kubernetes/kubelet.conf": kubeconfigOf("https://api.test:6443")}
	for name, f := range files {
		if all[name] = f; f == nil {
			delete(all, name)
		}
	}
	return startOn(t, all, addresses, names)
}

// startOn runs a Keeper on the host's files.
func startOn(t *testing.T, host fs.FS, addresses string, names map[string][]netip.Addr) *kept {
	t.Helper()
	all := map[string][]netip.Addr{"api.test": addrs("192.0.2.10")}
	maps.Copy(all, names)
	k := &kept{t: t, clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0)), kernel: underlay.NewFake(), lists: make(chan *failsafe.List, 100),
		names: &answers{names: all, asked: map[string]int{}}}
	var err error
	k.Keeper, err = New(Options{Node: "n1", APIServer: "192.0.2.8:443", Host: host, Underlay: k.kernel, Resolver: k.names, File: addresses, Log: slog.New(slog.DiscardHandler), Clock: k.clock})
	fatal.If(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx, func(l *failsafe.List) { k.lists <- l }) }()
	k.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(k.end)
	return k
}

// begin gives the Keeper an empty cluster and Corefile, and returns the first list.
func (k *kept) begin() *failsafe.List {
	k.t.Helper()
	k.SetCluster(Cluster{})
	k.SetCorefile(Corefile{})
	return k.next()
}

func (k *kept) next() *failsafe.List {
	k.t.Helper()
	select {
	case l := <-k.lists:
		return l
	case <-time.After(time.Minute):
		k.t.Fatal("no list came")
		return nil
	}
}

// addressesOf are the addresses of a reason, those that are gone in parentheses.
func addressesOf(l *failsafe.List, reason string) string {
	var out []string
	for _, e := range l.Entries {
		if e.Reason != reason || strings.HasSuffix(e.Source, "agent") {
			continue
		}
		text := e.Destination()
		if !e.Gone.IsZero() {
			text = "(" + text + ")"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (k *kept) want(l *failsafe.List, reason, want string) {
	k.t.Helper()
	if got := addressesOf(l, reason); got != want {
		k.t.Errorf("%s: %s, want %s", reason, got, want)
	}
}

// TestQueriesOfNames: the names of failsafes in every form in which programs of the host query them. A name
// that is an address has none.
func TestQueriesOfNames(t *testing.T) {
	k := startWith(t, fstest.MapFS{
		"etc/resolv.conf":             file("nameserver 192.0.2.53\nsearch corp.test. example.org\n"),
		"etc/kubernetes/kubelet.conf": kubeconfigOf("https://API:6443"),
		"etc/systemd/timesyncd.conf":  file("[Time]\nNTP=time.test 192.0.2.123\n"),
	}, "", map[string][]netip.Addr{"API": addrs("192.0.2.10")})
	var got []string
	for n := range k.begin().Queries {
		got = append(got, n.String())
	}
	slices.Sort(got)
	want := "api api.corp.test api.example.org time.test time.test.corp.test time.test.example.org"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// TestRotatingName: an API server by a name whose address changes: each answer is opened at
// its TTL, and earlier addresses stay for a day, and then as long as a connection to them is
// open.
func TestRotatingName(t *testing.T) {
	k := start(t, nil)
	l := k.begin()
	k.want(l, "API server", "192.0.2.10")
	if len(l.Names) != 1 || l.Names[0].Host != "api.test" || !l.Complete() {
		t.Errorf("names %v, findings %v", l.Names, l.Findings)
	}
	k.names.set("api.test", addrs("192.0.2.11 2001:db8::11")...)
	k.clock.Step(30 * time.Second)
	k.want(k.next(), "API server", "(192.0.2.10) 192.0.2.11 2001:db8::11")
	k.names.set("api.test") // an outage
	k.clock.Step(30 * time.Second)
	l = k.next()
	k.want(l, "API server", "(192.0.2.10) 192.0.2.11 2001:db8::11")
	if len(l.Findings) != 1 || !l.Findings[0].Stale || !l.Complete() || l.Findings[0].Port != 6443 {
		t.Errorf("in an outage: %+v", l.Findings)
	}
	k.kernel.Set(underlay.FakeState{Connections: ends("192.0.2.10:6443")}, true)
	k.names.set("api.test", addrs("192.0.2.11")...)
	k.clock.Step(23 * time.Hour)
	k.want(k.next(), "API server", "(192.0.2.10) (2001:db8::11) 192.0.2.11")
	k.clock.Step(24 * time.Hour)
	k.want(k.next(), "API server", "(192.0.2.10) 192.0.2.11")
	k.kernel.Set(underlay.FakeState{Connections: ends("192.0.2.10:443")}, true)
	k.clock.Step(time.Minute)
	k.want(k.next(), "API server", "192.0.2.11")
}

// TestFilesThatAreEmptyForAMoment: a kubeconfig or a resolv.conf that is read between the moments in which
// a program empties and writes it counts as one that cannot be read, also if another kubeconfig is there. So
// does a file that lists no resolver while no link is up.
func TestFilesThatAreEmptyForAMoment(t *testing.T) {
	const kubelet, bootstrap, resolvers, resolved = "etc/kubernetes/kubelet.conf", "etc/kubernetes/bootstrap-kubelet.conf", "etc/resolv.conf", "run/systemd/resolve/resolv.conf"
	for _, c := range []struct{ name, file, text, source string }{
		{"the only kubeconfig", kubelet, "", "kubeconfig of the kubelet: cannot be read: /etc/kubernetes/kubelet.conf is empty"},
		{"one of two kubeconfigs", bootstrap, "", "kubeconfig of the kubelet: cannot be read: /etc/kubernetes/bootstrap-kubelet.conf is empty"},
		{"resolv.conf", resolvers, "", "resolvers of the host: cannot be read: /etc/resolv.conf lists no resolver"},
		{"resolv.conf of NetworkManager without a link", resolvers, "# Generated by NetworkManager\n", "resolvers of the host: cannot be read: /etc/resolv.conf lists no resolver"},
		{"systemd-resolved without a link", resolved, "# No DNS servers known.\n", "resolvers of the host: cannot be read: the resolvers behind the host's own resolver in /etc/resolv.conf are not listed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{kubelet: kubeconfigOf("https://192.0.2.10:6443"), resolvers: file("nameserver 192.0.2.53\n")}
			switch c.file {
			case bootstrap:
				files[bootstrap] = kubeconfigOf("https://192.0.2.11:6443")
			case resolved:
				files[resolvers], files[resolved] = file("nameserver 127.0.0.53\n"), file("nameserver 192.0.2.53\n")
			}
			host := &switchedFS{now: files}
			k := startOn(t, host, "", nil)
			before := k.begin()
			if !before.Complete() || len(before.Findings) > 0 {
				t.Fatalf("findings %v", before.Findings)
			}
			emptied := maps.Clone(files)
			emptied[c.file] = file(c.text)
			host.set(emptied)
			k.clock.Step(Period)
			l := k.next()
			if !slices.Equal(l.Entries, before.Entries) {
				t.Errorf("entries\n%v\nwant those of before\n%v", l.Entries, before.Entries)
			}
			if !l.Complete() || len(l.Findings) != 1 || !strings.HasPrefix(l.Findings[0].String(), c.source) || !l.Findings[0].Stale {
				t.Errorf("findings %+v", l.Findings)
			}
			written := maps.Clone(files)
			if written[c.file] = kubeconfigOf("https://192.0.2.12:6443"); c.file == resolvers || c.file == resolved {
				written[c.file] = file("nameserver 192.0.2.54\n")
			}
			host.set(written)
			k.clock.Step(Period)
			if l := k.next(); len(l.Findings) > 0 || slices.Equal(l.Entries, before.Entries) {
				t.Errorf("the file that was written does not count: %v", l.Findings)
			}
		})
	}
}

// TestAllSessionsDown: the peers of BGP stay known while every session is down.
func TestAllSessionsDown(t *testing.T) {
	k := start(t, nil)
	k.kernel.Set(underlay.FakeState{Sessions: underlay.Sessions{Listens: true, Peers: addrs("192.0.2.254")}}, true)
	k.clock.Step(Period) // the Keeper may have read the sessions before they were set
	k.want(k.begin(), "BGP session", "192.0.2.254")
	k.kernel.Set(underlay.FakeState{Sessions: underlay.Sessions{Listens: true}}, true)
	k.clock.Step(Period)
	k.kernel.Set(underlay.FakeState{Sessions: underlay.Sessions{Listens: true}, Tunnels: underlay.Tunnels{Peers: []underlay.Peer{{Addr: addrs("198.51.100.2")[0], Protocol: 17, Port: 8472, Source: "vxlan0"}}}}, true)
	k.clock.Step(Period)
	l := k.next()
	k.want(l, "BGP session", "192.0.2.254")
	if !l.Complete() || len(l.Findings) > 0 {
		t.Errorf("findings %v", l.Findings)
	}
	k.kernel.Set(underlay.FakeState{Sessions: underlay.Sessions{Listens: true, Peers: addrs("192.0.2.253")}}, true)
	k.clock.Step(Period)
	k.want(k.next(), "BGP session", "(192.0.2.254) 192.0.2.253")
}

// TestANameThatComesBack: a name that a file lists again keeps the addresses that it had, although it cannot
// be resolved now.
func TestANameThatComesBack(t *testing.T) {
	without := fstest.MapFS{"etc/kubernetes/kubelet.conf": kubeconfigOf("https://192.0.2.10:6443"), "etc/resolv.conf": file("nameserver 192.0.2.53\n")}
	with := maps.Clone(without)
	with["etc/chrony.conf"] = file("server time.test\n")
	host := &switchedFS{now: with}
	k := startOn(t, host, "", map[string][]netip.Addr{"time.test": addrs("192.0.2.123")})
	k.want(k.begin(), "time", "192.0.2.123")
	host.set(without)
	k.clock.Step(Period)
	k.want(k.next(), "time", "(192.0.2.123)")
	k.names.set("time.test") // an outage
	host.set(with)
	k.clock.Step(Period)
	l := k.next()
	k.want(l, "time", "192.0.2.123")
	if !l.Complete() || len(l.Findings) != 1 {
		t.Errorf("findings %+v", l.Findings)
	}
}

// switchedFS is a file system that changes.
type switchedFS struct {
	mu  sync.Mutex
	now fstest.MapFS
}

func (s *switchedFS) set(files fstest.MapFS) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = files
}

func (s *switchedFS) files() fstest.MapFS {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Open implements fs.FS, and the others what links need.
func (s *switchedFS) Open(name string) (fs.File, error)          { return s.files().Open(name) }
func (s *switchedFS) Lstat(name string) (fs.FileInfo, error)     { return s.files().Lstat(name) }
func (s *switchedFS) ReadLink(name string) (string, error)       { return s.files().ReadLink(name) }
func (s *switchedFS) ReadDir(name string) ([]fs.DirEntry, error) { return s.files().ReadDir(name) }

// TestFirstListWaits: for the cluster, the Corefile and the names, so that an agent that
// starts does not take a failsafe for unknown.
func TestFirstListWaits(t *testing.T) {
	k := start(t, nil)
	k.SetCluster(Cluster{})
	select {
	case l := <-k.lists:
		t.Fatalf("a list without the Corefile: %v", l)
	case <-time.After(50 * time.Millisecond):
	}
	k.SetCorefile(Corefile{Upstreams: ends("192.0.2.54:53")})
	l := k.next()
	k.want(l, "API server", "192.0.2.10")
	k.want(l, "upstream of the agent", "192.0.2.54 192.0.2.54")
}

// TestLearn: an answer to a query of the host is opened at once, of names of the list alone.
func TestLearn(t *testing.T) {
	k := start(t, nil)
	k.want(k.begin(), "API server", "192.0.2.10")
	k.Learn("other.test", addrs("192.0.2.66"))
	k.Learn("api.test", addrs("::ffff:192.0.2.12 192.0.2.10"))
	k.want(k.next(), "API server", "192.0.2.10 192.0.2.12")
}

// TestEvents: an event has the tunnels read before the period is over, and what has no event
// is read with the period.
func TestEvents(t *testing.T) {
	k := start(t, nil)
	k.want(k.begin(), "tunnel peer", "")
	s := underlay.FakeState{Tunnels: underlay.Tunnels{Peers: []underlay.Peer{{Addr: addrs("198.51.100.2")[0], Protocol: 17, Port: 8472, Source: "vxlan0"}}}}
	k.kernel.Set(s, false)
	k.clock.Step(eventPause)
	k.want(k.next(), "tunnel peer", "198.51.100.2")
	if passed := k.clock.Since(time.Unix(1_700_000_000, 0)); passed >= Period {
		t.Errorf("the event counted after %v", passed)
	}
	s.Sessions.Peers = addrs("192.0.2.254")
	k.kernel.Set(s, true)
	k.clock.Step(Period)
	k.want(k.next(), "BGP session", "192.0.2.254")
	k.kernel.Fail(errors.New("no memory"))
	k.clock.Step(Period)
	l := k.next()
	k.want(l, "tunnel peer", "198.51.100.2")
	k.want(l, "BGP session", "192.0.2.254")
	if len(l.Findings) != 3 || !l.Complete() {
		t.Errorf("findings %v", l.Findings)
	}
}

// TestUnknown: what was never known is a finding that is not complete, and the Corefile
// settles it.
func TestUnknown(t *testing.T) {
	k := startWith(t, fstest.MapFS{"etc/kubernetes/kubelet.conf": nil, "etc/chrony.conf": file("server none.test\nserver failing.test\n")}, "", map[string][]netip.Addr{"failing.test": nil})
	l := k.begin()
	var got []string
	for _, f := range l.Findings {
		got = append(got, f.String())
		if !f.Failed || f.Stale || f.Port == 0 {
			t.Errorf("%+v", f)
		}
	}
	want := []string{
		"/etc/chrony.conf: the name failing.test (time) cannot be resolved: no answer from the resolver 192.0.2.53; write `failsafe ADDRESS:123` with its addresses in the Corefile",
		"kubeconfig of the kubelet: no kubeconfig of the kubelet found; let the agent read it (nodes.hostFiles of the chart), or write `failsafe ADDRESS:PORT` with the API servers' addresses in the Corefile",
	}
	if !slices.Equal(got, want) || l.Complete() {
		t.Errorf("%q", got)
	}
	k.SetCorefile(Corefile{Failsafes: []policy.Failsafe{
		{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Ports: failsafe.Port(policy.UDP, 123)}, {Prefix: netip.MustParsePrefix("192.0.2.10/32"), Ports: failsafe.Port(policy.TCP, 6443)}}})
	if l := k.next(); !l.Complete() || len(l.Findings) > 0 {
		t.Errorf("settled: %v", l.Findings)
	}
}

// TestCorefileEndsAtOnce: an entry that the administrator takes away does not stay, nor the
// address of a pod that ended.
func TestCorefileEndsAtOnce(t *testing.T) {
	k := start(t, nil)
	k.begin()
	k.SetCorefile(ofCorefile(policy.TCP, 443, 443))
	k.want(k.next(), "failsafe of the Corefile", "192.0.2.0/24")
	k.SetCluster(Cluster{Pods: addrs("10.9.0.1")})
	k.want(k.next(), "pods of this node", "10.9.0.1")
	k.SetCorefile(Corefile{})
	k.want(k.next(), "failsafe of the Corefile", "")
	k.SetCluster(Cluster{})
	k.want(k.next(), "pods of this node", "")
}

// TestSlowReadings: after a reading that took long, events wait.
func TestSlowReadings(t *testing.T) {
	k := start(t, nil)
	r := newRun(k.Keeper)
	g := &group{sources: []*source{{read: func(*Inputs) (bool, error) {
		k.clock.Step(2 * time.Second)
		return true, nil
	}}}}
	if !r.readDue(g) {
		t.Fatal("it was not read")
	}
	now := k.clock.Now()
	if g.least.Sub(now) != 40*time.Second || g.due.Sub(now) != 40*time.Second {
		t.Errorf("again after %v by an event, %v without one", g.least.Sub(now), g.due.Sub(now))
	}
	g.sources[0].read = func(*Inputs) (bool, error) { return true, nil }
	g.due = now
	if r.readDue(g); g.least.Sub(now) != eventPause || g.due.Sub(now) != Period {
		t.Errorf("again after %v by an event, %v without one", g.least.Sub(now), g.due.Sub(now))
	}
}

func TestGoneIsBounded(t *testing.T) {
	var r retained
	at := time.Unix(1_700_000_000, 0)
	entries := func(from, to int) (out []failsafe.Entry) {
		for i := from; i < to; i++ {
			out = append(out, wish(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), failsafe.Port(policy.TCP, 1), "x", "x"))
		}
		return sorted(out)
	}
	never := func(*failsafe.Entry) bool { return false }
	r.update(at, entries(0, 10), never)
	r.update(at.Add(time.Second), entries(10, 10+maxGone), never)
	got := r.update(at.Add(2*time.Second), nil, never)
	if len(got) != maxGone || slices.ContainsFunc(got, func(e failsafe.Entry) bool { return !e.Gone.Equal(at.Add(2 * time.Second)) }) {
		t.Errorf("%d entries stay, the first since %v", len(got), got[0].Gone)
	}
}

func TestOptions(t *testing.T) {
	whole := Options{Node: "n1", APIServer: "192.0.2.8:443", Host: fstest.MapFS{}, Underlay: underlay.NewFake(), Resolver: noAnswers{}, Log: slog.New(slog.DiscardHandler)}
	for name, change := range map[string]func(*Options){
		"node": func(o *Options) { o.Node = "" }, "host": func(o *Options) { o.Host = nil },
		"underlay": func(o *Options) { o.Underlay = nil }, "resolver": func(o *Options) { o.Resolver = nil }, "log": func(o *Options) { o.Log = nil },
	} {
		o := whole
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("without a %s it was made", name)
		}
	}
	if k, err := New(whole); err != nil || k.o.Clock == nil {
		t.Errorf("%v", err)
	}
}
