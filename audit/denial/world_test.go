package denial

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/policytest"
)

// world is a node of three pods: a is enforced, b is only audited, c is neither. The
// clock only moves by pass.
type world struct {
	t       *testing.T
	now     time.Time
	snap    *policy.Snapshot
	memory  *recent.Memory
	granted []policy.GrantInfo
	lines   []audit.Flow
	denials *Denials
}

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// The pods' addresses, by name.
var at = map[string]netip.Addr{
	"a": netip.MustParseAddr("10.1.0.5"), "b": netip.MustParseAddr("10.1.0.6"), "c": netip.MustParseAddr("10.1.0.7"), "other": netip.MustParseAddr("10.1.0.8"),
}

func newWorld(t *testing.T, more ...policy.Pod) *world {
	w := &world{t: t, now: start, memory: recent.NewMemory()}
	var pods []policy.Pod
	for _, name := range []string{"a", "b", "c", "other"} {
		mode := map[string]string{"a": "enforce", "other": "enforce", "b": "audit"}[name]
		pods = append(pods, policy.Pod{PodRef: policytest.Ref(name), IPs: []netip.Addr{at[name]}, Labels: map[string]string{"mode": mode}})
	}
	w.snap = compile.New().Compile(compile.Input{
		Policies: []*v1alpha1.FQDNNetworkPolicy{
			fqdnPolicy("allow", "enforce", v1alpha1.Enforcement("Enforce"), "web.example.org:443 *.api.example.org:443"),
			fqdnPolicy("watch", "audit", v1alpha1.Enforcement("Audit"), "web.example.org:443 any.example.org:0"),
		},
		Pods: append(pods, more...),
	})
	if len(w.snap.Problems) > 0 {
		t.Fatal(w.snap.Problems)
	}
	w.denials = New(Options{
		Packets: make(logged), Memory: w.memory,
		Snapshot: func() *policy.Snapshot { return w.snap },
		Granted: func(pod policy.PodRef, addr netip.Addr) []policy.GrantInfo {
			return w.grants(func(g policy.GrantInfo) bool { return g.Pod == pod && g.Addr == addr })
		},
		GrantedToAnybody: func(addr netip.Addr) []policy.GrantInfo {
			return w.grants(func(g policy.GrantInfo) bool { return g.Addr == addr })
		},
		Resolves: func(a netip.AddrPort) bool { return a == netip.MustParseAddrPort("192.0.2.53:53") },
		Log:      func(f *audit.Flow) { w.lines = append(w.lines, *f) },
		Now:      func() time.Time { return w.now },
		Logger:   slog.New(slog.DiscardHandler), CountsByName: func(dialled, reached netip.AddrPort) bool { return dialled == reached },
	})
	return w
}

func (w *world) grants(which func(policy.GrantInfo) bool) (out []policy.GrantInfo) {
	for _, g := range w.granted {
		if which(g) {
			out = append(out, g)
		}
	}
	return out
}

// fqdn is a policy of matches "NAME:PORT", each with TCP alone; port 0 is every port
// of every protocol.
func fqdnPolicy(called, mode string, e v1alpha1.Enforcement, matches string) *v1alpha1.FQDNNetworkPolicy {
	p := &v1alpha1.FQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: called}}
	p.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"mode": mode}}
	p.Spec.Enforcement = e
	for _, m := range strings.Fields(matches) {
		n, port, _ := strings.Cut(m, ":")
		r := v1alpha1.EgressRule{Matches: policytest.Matches(n)}
		if port != "0" {
			var number int32
			if _, err := fmt.Sscan(port, &number); err != nil {
				panic(err)
			}
			tcp := v1alpha1.ProtocolTCP
			r.Ports = []v1alpha1.Port{{Protocol: &tcp, Port: &number}}
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

// pass moves the clock, and does the work that is due.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.denials.pass()
}

// told is an answer to a pod that opened nothing.
func (w *world) told(pod, n, addr string, ttl uint32, blocked string) {
	w.memory.Note(&audit.Record{
		Time: w.now, Pod: policytest.Ref(pod), Name: policytest.Name(n), Verdict: audit.Unmatched,
		Answers: []audit.Answer{{Addr: netip.MustParseAddr(addr), TTL: ttl, Blocked: blocked}},
	})
}

// opened is a grant, that ends so much later.
func (w *world) opened(pod, n, addr string, in time.Duration) {
	w.granted = append(w.granted, policy.GrantInfo{Pod: policytest.Ref(pod), Name: policytest.Name(n), Addr: netip.MustParseAddr(addr), Until: w.now.Add(in)})
}

// packet is one of a pod's.
func (w *world) packet(prefix, pod, proto, to string) nflog.Packet {
	dst, err := netip.ParseAddrPort(to)
	if err != nil {
		dst = netip.AddrPortFrom(netip.MustParseAddr(to), 0)
	}
	protocol := map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "icmp": 1}[proto]
	return nflog.Packet{Prefix: prefix, Time: w.now, Source: at[pod], Destination: dst, Protocol: uint8(protocol)}
}

func (w *world) denied(pod, proto, to string) {
	w.denials.take(w.packet(nflog.PrefixDenied, pod, proto, to))
}

// audited is a packet of an audited pod, that is judged.
func (w *world) audited(pod, proto, to string) {
	w.denials.take(w.packet(nflog.PrefixAudited, pod, proto, to))
	w.pass(settle)
}

// text renders a flow: VERDICT POD [from SOURCE] PROTOCOL DESTINATION REASON [TIER POLICY RULE] xCOUNT [names].
func text(f audit.Flow) string {
	var names []string
	for _, n := range f.Names {
		s := n.Name.String()
		if n.Pod.Name != "" {
			s += " of " + n.Pod.Name
		}
		if n.Match != nil {
			s += " by " + n.Match.By()
		}
		names = append(names, s)
	}
	reason := string(f.Reason)
	if r := f.Rule; r != nil {
		reason += fmt.Sprintf(" %v %s %s", r.Tier, r.Policy, cmp.Or(r.Name, r.Path))
	}
	pod := f.Pod.Name
	if f.Source.IsValid() {
		pod += " from " + cmp.Or(f.SourcePod.Name, f.Source.String())
	}
	return fmt.Sprintf("%s %s %s %s %s x%d [%s]", f.Verdict, pod, f.Protocol, f.Dialled, reason, f.Count, strings.Join(names, "; "))
}

// expect asserts the lines since the last call.
func (w *world) expect(want ...string) {
	w.t.Helper()
	var got []string
	for _, f := range w.lines {
		got = append(got, text(f))
	}
	w.lines = nil
	if !slices.Equal(got, want) {
		w.t.Errorf("lines:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
