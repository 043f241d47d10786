package corefile

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var (
	kubeDNS = policy.ServiceRef{Namespace: "kube-system", Name: "kube-dns"}
	other   = policy.ServiceRef{Namespace: "9-dns", Name: "resolver2"}
)

func parseForward(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("Corefile", text)
	fatal.If(t, err)
	return c
}

// TestForwardToServices: addresses and Services in any mixture, and the order of
// the file is kept.
func TestForwardToServices(t *testing.T) {
	for _, tt := range []struct {
		to       string
		services []policy.ServiceRef
		before   []int
	}{
		{"192.0.2.1", nil, nil},
		{"kube-dns.kube-system", []policy.ServiceRef{kubeDNS}, []int{0}},
		{"192.0.2.9 kube-dns.kube-system 192.0.2.8", []policy.ServiceRef{kubeDNS}, []int{1}},
		{"resolver2.9-dns 192.0.2.1 kube-dns.kube-system", []policy.ServiceRef{other, kubeDNS}, []int{0, 1}},
	} {
		c := parseForward(t, ". {\nforward . "+tt.to+"\n}")
		z := c.Zones[0]
		if !slices.Equal(z.Services, tt.services) || !slices.Equal(c.Services(), tt.services) || !slices.Equal(z.Before, tt.before) {
			t.Errorf("%s: Services %v behind %v", tt.to, z.Services, z.Before)
		}
	}
}

func TestServicesAreListedOnce(t *testing.T) {
	c := parseForward(t, "corp.test {\nforward . resolver2.9-dns kube-dns.kube-system\n}\n. {\nforward . kube-dns.kube-system\nforward x.test 192.0.2.1\n}")
	got := c.Services()
	slices.SortFunc(got, func(a, b policy.ServiceRef) int { return len(a.Name) - len(b.Name) })
	diff.Error(t, []policy.ServiceRef{kubeDNS, other}, got, "Services")
}

// TestServicesNeedNoRestart: only an address of the root zone is read at the start.
func TestServicesNeedNoRestart(t *testing.T) {
	start := parseForward(t, ". {\nforward . 192.0.2.1\n}")
	for to, want := range map[string][]string{
		"192.0.2.1 kube-dns.kube-system":           nil,
		"a.b 192.0.2.1 kube-dns.kube-system":       nil,
		"kube-dns.kube-system 192.0.2.2":           {"forward"},
		"kube-dns.kube-system 192.0.2.1:5300":      {"forward"},
		"192.0.2.1 192.0.2.2:5300 resolver2.9-dns": nil,
	} {
		diff.Error(t, want, parseForward(t, ". {\nforward . "+to+"\n}").NeedsRestart(start), to, "needs a restart")
	}
	followed := parseForward(t, ". {\nforward . kube-dns.kube-system\n}")
	if got := parseForward(t, ". {\nforward . resolver2.9-dns\n}").NeedsRestart(followed); got != nil {
		t.Errorf("another Service: %v", got)
	}
	diff.Empty(t, followed.Resolvers(), "resolvers by address")
}

func TestOwnAddresses(t *testing.T) {
	c := Default()
	for a, want := range map[string]bool{
		"169.254.20.53": true, "169.254.20.64": true, "fd5c:7a1e:93b4::53": true, "fd5c:7a1e:93b4::1:7": true,
		"169.254.20.10": false, "10.96.0.10": false, "fd5c:7a1e:93b4::54": false,
	} {
		diff.Equal(t, want, c.Own(netip.MustParseAddr(a)), a)
	}
}
