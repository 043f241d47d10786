package cluster

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestAddressRange(t *testing.T) {
	for _, c := range []struct {
		prefix string
		count  int
		want   object
	}{
		{"10.244.1.0/24", 0, object{"subnet": "10.244.1.0/24"}},
		{"10.244.1.0/24", 1, object{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.2", "rangeEnd": "10.244.1.2"}},
		{"10.244.1.0/24", 6, object{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.2", "rangeEnd": "10.244.1.7"}},
		{"2001:db8:1::/64", 300, object{"subnet": "2001:db8:1::/64", "rangeStart": "2001:db8:1::2", "rangeEnd": "2001:db8:1::12d"}},
		{"10.244.1.0/30", 3, nil},
	} {
		got, err := addressRange(netip.MustParsePrefix(c.prefix), c.count)
		if (err != nil) != (c.want == nil) {
			t.Errorf("%d addresses of %s: %v", c.count, c.prefix, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%d addresses of %s (-want +got):\n%s", c.count, c.prefix, diff)
		}
	}
}

func TestConflist(t *testing.T) {
	for i, plugin := range []string{"ptp", "bridge"} {
		n := &Node{Host: &Host{Name: nodeSites[i].name}, site: nodeSites[i]}
		made, err := n.plugin(4)
		fatal.If(t, err)
		text, err := conflist(made)
		fatal.If(t, err)
		var list struct {
			Plugins []struct {
				Type   string
				IPMasq bool `json:"ipMasq"`
				IPAM   struct{ Ranges [][]map[string]string }
			}
		}
		fatal.If(t, json.Unmarshal(text, &list))
		first := list.Plugins[0]
		if first.Type != plugin || first.IPMasq {
			t.Errorf("pods of %s are joined by %+v, want %s without masking", n.Name, first, plugin)
		}
		// One list for each family: with both in one list a pod would get one address.
		if len(first.IPAM.Ranges) != 2 || first.IPAM.Ranges[0][0]["subnet"] != n.pods4.String() || first.IPAM.Ranges[1][0]["subnet"] != n.pods6.String() {
			t.Errorf("pods of %s get addresses of %v", n.Name, first.IPAM.Ranges)
		}
	}
}
