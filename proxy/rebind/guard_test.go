package rebind

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

const worldConfig = `. {
    forward . 198.51.100.53
    cluster cluster.local 10.1.0.0/16 10.96.0.0/12
    rebind allow ingress.test 10.96.7.0/24
    rebind allow partner.svc.cluster.local 192.0.2.7/32
    nat64 2001:db8:64::/96
}`

// world returns a guard of a cluster, and a snapshot with one pod.
func world(t testing.TB) (*Guard, *policy.Snapshot) {
	t.Helper()
	pod := policy.Pod{PodRef: policy.PodRef{Namespace: "shop", Name: "web", UID: "uid"}, IPs: addrsOf("10.1.0.6", "2001:db8:1::2")}
	snap := compile.New().Compile(compile.Input{Namespaces: map[string]map[string]string{"shop": {}}, Pods: []policy.Pod{pod}})
	return New(parsed(t, worldConfig), Addresses{Nodes: addrsOf("192.0.2.250"), Services: addrsOf("203.0.113.250")}), snap
}

func parsed(t testing.TB, text string) *corefile.Config {
	t.Helper()
	c, err := corefile.Parse("Corefile", text)
	fatal.If(t, err)
	return c
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrsOf(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, mustAddr(s))
	}
	return out
}

func TestGuard(t *testing.T) {
	g, snap := world(t)
	const outside, inside = "www.example.org", "db.shop.svc.cluster.local"
	for _, tt := range []struct {
		name, addr string
		why        string // "" is free
	}{
		{outside, "192.0.2.1", ""},
		{outside, "2001:db8:9::1", ""},
		{outside, "172.16.0.1", ""}, // private, but not the cluster's
		{outside, "127.0.0.1", "loopback"},
		{outside, "127.255.255.254", "loopback"},
		{outside, "::1", "loopback"},
		{outside, "0.0.0.0", "unspecified"},
		{outside, "0.1.2.3", "unspecified"},
		{outside, "::", "unspecified"},
		{outside, "169.254.0.1", "link-local"},
		{outside, "169.254.20.53", "link-local"},
		{outside, "169.254.169.254", "metadata"},
		{outside, "fe80::1", "link-local"},
		{outside, "febf::1", "link-local"},
		{outside, "224.0.0.251", "multicast"},
		{outside, "ff02::1", "multicast"},
		{outside, "255.255.255.255", "reserved"},
		{outside, "240.0.0.1", "reserved"},
		{outside, "fd00:ec2::254", "metadata"},
		{outside, "168.63.129.16", "metadata"},
		{outside, "100.100.100.200", "metadata"},
		{outside, "fd5c:7a1e:93b4::53", "node"}, // the endpoint
		{outside, "192.0.2.250", "node"},
		{outside, "203.0.113.250", "service"},
		{outside, "10.1.0.6", "pod"},
		{outside, "2001:db8:1::2", "pod"}, // outside of the configured ranges
		{outside, "10.1.200.200", "cluster"},
		{outside, "10.96.0.1", "cluster"},
		{outside, "10.112.0.1", ""},

		{outside, "::ffff:127.0.0.1", "loopback"},
		{outside, "::ffff:192.0.2.1", ""},
		{outside, "::127.0.0.1", "loopback in"},
		{outside, "::ffff:0:10.96.0.1", "cluster in"},
		{outside, "64:ff9b::169.254.169.254", "metadata in"},
		{outside, "64:ff9b::192.0.2.1", ""},
		{outside, "64:ff9b::10.1.0.6", "pod in"},
		{outside, "64:ff9b:1::10.96.0.1", "cluster in"},
		{outside, "64:ff9b:1::192.0.2.1", ""},
		{outside, "64:ff9b:1:a60:0:100::", "cluster in"}, // a prefix of 48 bits
		{outside, "64:ff9b:1:c000:2:100::", ""},
		{outside, "2001:db8:64::10.96.0.1", "cluster in"}, // nat64 in the configuration
		{outside, "2001:db8:65::10.96.0.1", ""},
		{outside, "2002:a60:1::1", "cluster in"},
		{outside, "2002:c000:201::1", ""},
		{outside, "2001:0:a60:1::", "cluster in"},
		{outside, "2001::f5ff:ffff:f59f:fffe", "unspecified in"}, // server 0.0.0.0

		{inside, "10.96.0.1", ""},
		{inside, "10.1.0.6", ""},
		{inside, "192.0.2.250", ""},
		{inside, "203.0.113.250", ""},
		{inside, "2001:db8:1::2", ""}, // a pod
		{inside, "192.0.2.1", "outside"},
		{inside, "10.112.0.1", "outside"},
		{inside, "2001:db8:9::1", "outside"},
		{inside, "64:ff9b::10.1.0.6", "outside"},
		{"db.partner.svc.cluster.local", "192.0.2.7", ""}, // by an exception
		{"db.partner.svc.cluster.local", "192.0.2.8", "outside"},
		{inside, "127.0.0.1", "loopback"},
		{inside, "169.254.169.254", "metadata"},
		{inside, "::ffff:169.254.169.254", "metadata"},
		{"cluster.local", "10.96.0.1", ""},
		{"notcluster.local", "10.96.0.1", "cluster"},
		{`x\.cluster.local`, "10.96.0.1", "cluster"},

		{"app.ingress.test", "10.96.7.1", ""},
		{"ingress.test", "10.96.7.1", ""},
		{"app.ingress.test", "10.96.8.1", "cluster"},
		{"appingress.test", "10.96.7.1", "cluster"},
		{"app.ingress.test", "64:ff9b::10.96.7.1", ""},
		{"app.ingress.test", "::ffff:10.96.7.1", ""},
		{"app.ingress.test", "127.0.0.1", "loopback"},
	} {
		why := g.Blocked(policytest.Name(tt.name), netip.MustParseAddr(tt.addr), snap)
		if (why == "") != (tt.why == "") || !strings.HasPrefix(why, tt.why) {
			t.Errorf("%s → %s: %q, want %q", tt.name, tt.addr, why, tt.why)
		}
	}
}

func TestGuardOpensMetadataOnlyByName(t *testing.T) {
	c := parsed(t, worldConfig)
	c.Rebind = append(c.Rebind, c.Rebind[0])
	c.Rebind[1].Suffix = policytest.Name("metadata.test")
	c.Rebind[1].Range = netip.MustParsePrefix("169.254.169.254/32")
	g := New(c, Addresses{})
	a := netip.MustParseAddr("169.254.169.254")
	diff.Equal(t, "", g.Blocked(policytest.Name("metadata.test"), a, nil), "blocked")
	if why := g.Blocked(policytest.Name("www.example.org"), a, nil); why == "" {
		t.Error("another name may")
	}
}

// FuzzGuard: no form of a blocked IPv4 address gets past.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{169, 254, 169, 254}, uint8(0))
	f.Add([]byte{10, 96, 0, 1}, uint8(3))
	g, snap := world(f)
	n := policytest.Name("www.example.org")
	f.Fuzz(func(t *testing.T, ip []byte, form uint8) {
		if len(ip) != 4 {
			return
		}
		inner := netip.AddrFrom4([4]byte(ip))
		if g.Blocked(n, inner, snap) == "" {
			return
		}
		var b [16]byte
		switch form % 5 {
		case 0:
			b = inner.As16()
		case 1:
			copy(b[12:], ip)
		case 2:
			copy(b[:], []byte{0, 0x64, 0xff, 0x9b})
			copy(b[12:], ip)
		case 3:
			copy(b[:], []byte{0x20, 0x02})
			copy(b[2:], ip)
		case 4:
			p := netip.MustParseAddr("2001:db8:64::").As16()
			copy(b[:], p[:])
			copy(b[12:], ip)
		}
		if a := netip.AddrFrom16(b); g.Blocked(n, a, snap) == "" {
			t.Errorf("%s is blocked, %s is not", inner, a)
		}
	})
}

// TestGuardNeverOpensAddressesWithoutAHost: not even by a range of the administrator that
// covers it, nor inside another address.
func TestGuardNeverOpensAddressesWithoutAHost(t *testing.T) {
	c := corefile.Default()
	for _, r := range []string{"126.0.0.0/7", "64.0.0.0/2", "192.0.0.0/2", "0.0.0.0/1", "8000::/1", "::/1", "10.0.0.0/8", "169.254.0.0/16"} {
		c.Rebind = append(c.Rebind, corefile.RebindAllow{Suffix: policytest.Name("x.test"), Range: netip.MustParsePrefix(r)})
	}
	g := New(c, Addresses{Nodes: addrsOf("10.0.0.1", "203.0.113.9")})
	for a, want := range map[string]string{
		"127.0.0.1": "loopback", "::1": "loopback", "0.0.0.1": "unspecified", "224.0.0.1": "multicast", "ff02::1": "multicast",
		"255.255.255.255": "reserved", "::ffff:127.0.0.1": "loopback", "64:ff9b::7f00:1": "loopback in 64:ff9b::7f00:1",
		"169.254.169.254": "", "10.0.0.1": "", "fe80::1": "",
	} {
		diff.Equal(t, want, g.Blocked(policytest.Name("a.x.test"), mustAddr(a), nil), a)
	}
	for _, a := range []string{"10.0.0.1", "203.0.113.9"} {
		diff.Equal(t, "node", g.Blocked(policytest.Name("www.example.org"), mustAddr(a), nil), "another node's", a)
	}
}

// resolverConfig has resolvers of each kind that a Corefile can name.
const resolverConfig = `. {
    bind 203.0.113.53 2001:db8:53::53
    forward . 198.51.100.53 [2001:db8::53]:5353 kube-dns.kube-system
    cluster cluster.local 10.1.0.0/16
    intercept 192.0.2.77
    rebind allow dns.test 198.51.100.53/32
}
corp.test {
    forward . 192.0.2.88:5300
}`

// TestGuardKnowsResolvers: an outside name opens neither a resolver that the agent
// knows nor an address of its own, in any form.
func TestGuardKnowsResolvers(t *testing.T) {
	g := New(parsed(t, resolverConfig), Addresses{Resolvers: addrsOf("::ffff:198.18.0.10", "2001:db8:42::10", "::ffff:198.18.0.53", "2001:db8:1::53")})
	const outside, inside = "www.example.org", "kube-dns.kube-system.svc.cluster.local"
	for _, tt := range []struct{ addr, why string }{
		{"203.0.113.53", "node"}, // the endpoint
		{"2001:db8:53::53", "node"},
		{"fd5c:7a1e:93b4::1:7", "node"}, // a serving address of the agent
		{"198.51.100.53", "resolver"},
		{"2001:db8::53", "resolver"},
		{"192.0.2.77", "resolver"},
		{"192.0.2.88", "resolver"}, // of another zone
		{"198.18.0.10", "resolver"},
		{"2001:db8:42::10", "resolver"},
		{"198.18.0.53", "resolver"},
		{"2001:db8:1::53", "resolver"},
		{"192.0.2.1", ""},
		{"fd5c:7a1e:93b4::2:7", ""},
	} {
		a := mustAddr(tt.addr)
		diff.Equal(t, tt.why, g.Blocked(policytest.Name(outside), a, nil), a)
		// Of a name of the cluster a resolver is an address as any.
		if why := g.Blocked(policytest.Name(inside), a, nil); (why == "") != (tt.why == "node") || why != "" && why != audit.BlockedOutside {
			t.Errorf("a name of the cluster, %s: %q", a, why)
		}
		if !a.Is4() {
			continue
		}
		diff.Equal(t, tt.why, g.Blocked(policytest.Name(outside), netip.AddrFrom16(a.As16()), nil), "mapped", a)
		if why := g.Blocked(policytest.Name(outside), mustAddr("64:ff9b::"+tt.addr), nil); (why == "") != (tt.why == "") {
			t.Errorf("by NAT64, %s: %q", a, why)
		}
	}
	diff.Equal(t, "", g.Blocked(policytest.Name("dns.test"), mustAddr("198.51.100.53"), nil), "blocked although the administrator allows it")
}

// TestInside: what is of the cluster or of the pod's link, whatever the guard lets a name open.
func TestInside(t *testing.T) {
	g, snap := world(t)
	for a, want := range map[string]bool{
		"192.0.2.1": false, "::ffff:192.0.2.1": false, "2001:db8:9::1": false, "172.16.0.1": false, "198.51.100.53": false, // a resolver
		"10.96.7.1": true, "::ffff:10.96.7.1": true, "10.1.0.6": true, "10.1.0.9": true, "2001:db8:1::2": true, "192.0.2.250": true, "203.0.113.250": true, "fd5c:7a1e:93b4::53": true,
		"169.254.169.254": true, "169.254.0.1": true, "fe80::1": true, "fd00:ec2::254": true,
		"64:ff9b::10.96.7.1": true, "64:ff9b::192.0.2.1": false, "2001:db8:64::10.1.0.6": true, "2002:0a01:0006::1": true,
	} {
		diff.Equal(t, want, g.Inside(mustAddr(a), snap), a)
		for _, n := range []string{"www.example.org", "a.ingress.test", "partner.svc.cluster.local"} {
			v := g.Judge(policytest.Name(n), mustAddr(a), true, snap)
			if v.Reason != g.Blocked(policytest.Name(n), mustAddr(a), snap) || v.Inside != (want && v.Reason == "") || g.Judge(policytest.Name(n), mustAddr(a), false, snap).Inside {
				t.Errorf("%s %s: %+v", n, a, v)
			}
		}
	}
}
