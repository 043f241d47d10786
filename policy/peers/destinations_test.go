package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNetworks: the union of blocks without their exceptions, as the fewest networks.
func TestNetworks(t *testing.T) {
	for name, test := range map[string]struct {
		of   string // a network, and with each - an exception from it
		most int
		want string
		made int
	}{
		"bits twice, inside":             {"192.0.2.64/26 192.0.2.0/24 192.0.2.0/24", 9, "192.0.2.0/24", 1},
		"halves":                         {"192.0.2.128/25 192.0.2.0/25", 9, "192.0.2.0/24", 1},
		"neighbours, not halves":         {"192.0.2.64/26 192.0.2.128/26", 9, "192.0.2.64/26,192.0.2.128/26", 2},
		"both families":                  {"128.0.0.0/1 0.0.0.0/1 8000::/1 ::/1", 9, "0.0.0.0/0,::/0", 2},
		"families do not touch":          {"255.255.255.255/32 ::/128", 9, "255.255.255.255/32,::/128", 2},
		"exceptions that overlap":        {"192.0.2.0/24-192.0.2.0/25-192.0.2.64/26", 9, "192.0.2.128/25", 1},
		"exception of another's network": {"192.0.2.0/24-192.0.2.0/25 192.0.2.0/26", 9, "192.0.2.0/26,192.0.2.128/25", 2},
		"the ends of a family":           {"0.0.0.0/0-0.0.0.0/1-255.255.255.255/32 ffff::/16-ffff::/17", 3, "128.0.0.0/2,192.0.0.0/3,224.0.0.0/4", 32},
		"too many":                       {"192.0.2.0/32 192.0.2.2/32 192.0.2.4/31", 2, "192.0.2.0/32,192.0.2.2/32", 3},
		"too many in a range":            {"192.0.2.0/29-192.0.2.7/32", 2, "192.0.2.0/30,192.0.2.4/31", 3},
	} {
		var d Destinations
		for _, block := range strings.Fields(test.of) {
			texts := strings.Split(block, "-")
			var holes []netip.Prefix
			for _, hole := range texts[1:] {
				holes = append(holes, netip.MustParsePrefix(hole))
			}
			d.AddNetwork(netip.MustParsePrefix(texts[0]), holes)
		}
		made, last := d.Normalize(test.most)
		if got := d.networksText(); got != test.want || made != test.made || d.count != min(made, test.most) {
			t.Errorf("%s: %s, %d made, %d kept; want %s, %d", name, got, made, d.count, test.want, test.made)
		}
		if over := made > test.most; over != last.IsValid() || over && !strings.HasSuffix(test.want, last.String()) {
			t.Errorf("%s: the last is %v", name, last)
		}
	}
}

func TestSetOfNetworksContains(t *testing.T) {
	set := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks}, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/25"), netip.MustParsePrefix("10.0.0.192/27"), netip.MustParsePrefix("2001:db8::/64")}}
	got := map[string]bool{}
	for _, a := range []string{"9.255.255.255", "10.0.0.0", "10.0.0.127", "10.0.0.128", "10.0.0.192", "10.0.0.200", "10.0.0.224", "::1", "2001:db8::", "2001:db8::9", "2001:db8:0:1::"} {
		got[a] = set.Contains(netip.MustParseAddr(a), policy.TCP, 1)
	}
	diff.Error(t, map[string]bool{"9.255.255.255": false, "10.0.0.0": true, "10.0.0.127": true, "10.0.0.128": false, "10.0.0.192": true, "10.0.0.200": true,
		"10.0.0.224": false, "::1": false, "2001:db8::": true, "2001:db8::9": true, "2001:db8:0:1::": false}, got)
}

func aPod(name, address string, labels map[string]string, ports ...policy.NamedPort) *policy.Pod {
	return &policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: name}, NodeName: "far", Labels: labels, Ports: ports,
		IPs: []netip.Addr{netip.MustParseAddr(address)}}
}

// specOf is the pods of shop with the labels.
func specOf(t *testing.T, labels map[string]string) *Spec {
	t.Helper()
	s, err := NewSelector(&metav1.LabelSelector{MatchLabels: labels})
	fatal.If(t, err)
	var d Destinations
	d.AddPods("shop", s)
	d.Normalize(1)
	return d.ByNumber()[0]
}

// TestWantedLabels are indexed, as specs come and go, and no others.
func TestWantedLabels(t *testing.T) {
	x, one, two := NewIndex(), specOf(t, map[string]string{"app": "db"}), specOf(t, map[string]string{"app": "db", "tier": "x"})
	far := aPod("db", "10.1.0.1", map[string]string{"app": "db", "tier": "x", "a": "b", "c": "d", "e": "f"})
	moved := aPod("db", "10.1.0.1", map[string]string{"tier": "x"})
	for i, step := range []struct {
		came, went []*Spec
		pod        *policy.Pod
		want       []string // the label and how many pods have it
	}{
		{nil, nil, far, nil},
		{[]*Spec{one}, nil, far, []string{"[app db] 1"}},
		{[]*Spec{two}, nil, far, []string{"[app db] 1", "[tier x] 1"}},
		{nil, []*Spec{one}, far, []string{"[app db] 1", "[tier x] 1"}},
		{nil, nil, moved, []string{"[app db] 0", "[tier x] 1"}},
		{nil, nil, far, []string{"[app db] 1", "[tier x] 1"}},
		{nil, []*Spec{two}, far, nil},
		{[]*Spec{one}, nil, nil, []string{"[app db] 0"}},
		{nil, nil, far, []string{"[app db] 1"}},
	} {
		x.Want(step.came, step.went)
		x.Update(uint64(i+1), nil, nil, []*policy.Pod{step.pod})
		var got []string
		for at, b := range x.byLabel {
			got = append(got, fmt.Sprint(at, len(b.pods)))
		}
		slices.Sort(got)
		diff.Error(t, step.want, got, "step", i)
	}
}

// TestIndexCounts the ports of the pods in each bucket as pods come and go, and keeps
// nothing of pods that are gone.
func TestIndexCounts(t *testing.T) {
	x := NewIndex()
	x.Want([]*Spec{specOf(t, map[string]string{"app": "db"})}, nil)
	ports := [][]policy.NamedPort{nil,
		{{Name: "x", Protocol: policy.TCP, Port: 1}, {Name: "sql", Protocol: policy.TCP, Port: 2}, {Name: "x", Protocol: policy.UDP, Port: 3}},
		{{Name: "sql", Protocol: policy.TCP, Port: 5432}}, {{Name: "x", Protocol: policy.TCP, Port: 1}, {Name: "x", Protocol: policy.TCP, Port: 2}}}
	pods := make([]*policy.Pod, 5)
	for i := range 40 {
		at := i % len(pods)
		pods[at] = aPod(fmt.Sprint("p", at), fmt.Sprintf("10.1.0.%d", at+1), map[string]string{"app": []string{"db", "web"}[i*5%3%2]}, ports[i*7%len(ports)]...)
		x.Update(uint64(i+1), nil, nil, pods)
		check := func(what string, b *bucket, of func(*pod) int) {
			ports := 0
			for _, p := range b.pods {
				ports += of(p)
			}
			diff.Equal(t, b.ports, ports, "step", i, what, "ports")
		}
		all := func(p *pod) int { return len(p.ports) }
		for name, sp := range x.spaces {
			check(name, &sp.bucket, all)
		}
		for name, b := range x.byPort {
			check(name, b, func(p *pod) int { return len(of(p.ports, name)) })
		}
		for at, b := range x.byLabel {
			check(fmt.Sprint(at), b, all)
		}
	}
	x.Update(100, nil, nil, nil)
	got := []int{len(x.remote), len(x.local), len(x.byAddr), len(x.byLabel), len(x.byPort), len(x.spaces)}
	diff.Error(t, []int{0, 0, 0, 1, 0, 0}, got)
}
