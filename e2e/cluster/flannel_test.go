package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestFlannelPlugin(t *testing.T) {
	got, err := flannelPlugin("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n")
	fatal.If(t, err)
	ipam := got["ipam"].(object)
	if diff := cmp.Diff([][]object{{{"subnet": "10.244.1.0/24"}}, {{"subnet": "fd00:244:0:1::/64"}}}, ipam["ranges"]); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
	if got["mtu"] != 1450 || got["type"] != "bridge" {
		t.Errorf("plugin %v", got)
	}
	for _, env := range []string{"", "FLANNEL_MTU=1450\n", "FLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\n"} {
		if _, err := flannelPlugin(env); err == nil {
			t.Errorf("%q is accepted", env)
		}
	}
}

func TestRoutesOfPods(t *testing.T) {
	n := &Node{Host: &Host{Name: nodeSites[0].name}, site: nodeSites[0]}
	if diff := cmp.Diff([]string{"route del 10.244.2.0/24 via 10.77.0.12", "-6 route del fd00:244:0:2::/64 via fd00:77::12"}, n.podRoutes("del")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
