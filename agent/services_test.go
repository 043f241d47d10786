package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
)

// TestServicesThatNamesLeadThrough: cluster IPs, and load balancers of `rebind allow`. A folder of manifests has the
// ranges in their place.
func TestServicesThatNamesLeadThrough(t *testing.T) {
	prefix := netip.MustParsePrefix
	config := corefile.Default()
	config.ClusterRanges = []netip.Prefix{prefix("10.96.0.0/24"), prefix("fd00:96::/112")}
	config.Rebind = []corefile.RebindAllow{{Range: prefix("198.18.0.0/24")}, {Range: prefix("198.18.0.0/25")}}
	c := policy.Cluster{ClusterIPs: addrs("10.96.0.9", "10.98.0.9", "fd00:96::9")}
	c.Services = append(addrs("198.18.0.7", "198.18.1.7"), c.ClusterIPs...)
	for kind, want := range map[*Cluster]string{
		{}:  "[10.96.0.9/32 10.98.0.9/32 198.18.0.7/32 fd00:96::9/128]",
		nil: "[10.96.0.0/24 198.18.0.0/24 fd00:96::/112]",
	} {
		a := &agent{o: Options{Cluster: kind}}
		a.config.Store(config)
		known := c
		if kind == nil {
			known = policy.Cluster{}
		}
		n := intercept.Network{Services: (&network{agent: a}).services(known)}
		if got := fmt.Sprint(n.Services); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for text, is := range map[string]bool{"10.96.0.9": true, "198.18.0.7": true, "fd00:96::9": true, "10.95.255.255": false, "10.96.0.10": kind == nil, "198.18.1.7": false, "fd00:97::9": false, "::": false} {
			if n.IsService(netip.MustParseAddr(text)) != is {
				t.Errorf("%v: %s is one: %v", n.Services, text, !is)
			}
		}
	}
}
