package failsafe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func addrs(words string) (out []netip.Addr) {
	for w := range strings.FieldsSeq(words) {
		out = append(out, netip.MustParseAddr(w))
	}
	return out
}

func prefixes(words string) (out []netip.Prefix) {
	for w := range strings.FieldsSeq(words) {
		out = append(out, netip.MustParsePrefix(w))
	}
	return out
}

func addrPorts(words string) (out []netip.AddrPort) {
	for w := range strings.FieldsSeq(words) {
		out = append(out, netip.MustParseAddrPort(w))
	}
	return out
}

// full has something for each row.
func full() *Inputs {
	return &Inputs{
		Config: &Config{
			Nodes: prefixes("203.0.113.0/28"),
			Rows:  []policy.Failsafe{{Name: "Corefile:7", Out: true, Networks: prefixes("198.51.100.0/24"), Ports: []policy.PortRange{{Protocol: policy.TCP, First: 443, Last: 443}}}},
		},
		Cluster: &policy.Cluster{
			Nodes: addrs("192.0.2.1 192.0.2.2 2001:db8::2"), Own: &policy.Host{ProviderID: "aws:///zone/i-1", Addrs: addrs("192.0.2.1")},
			APIServers: policy.APIServers{Service: addrPorts("10.96.0.1:443"), Endpoints: addrPorts("192.0.2.1:6444")},
			PodRanges:  prefixes("10.244.1.0/24 10.244.2.0/24"), LocalRanges: prefixes("10.244.1.0/24"), ClusterIPs: addrs("10.96.0.1"),
			Resolvers: map[policy.ServiceRef]policy.Resolver{{Namespace: "kube-system", Name: "kube-dns"}: {ClusterIPs: addrs("10.96.0.10"), Endpoints: addrPorts("10.244.2.7:53")}},
		},
		APIServer: "192.0.2.99:6443", Pods: addrs("10.9.0.5"), Ranges: prefixes("10.244.0.0/16"),
		Resolvers: addrs("203.0.113.53 2001:db8:53::1"), Upstreams: addrPorts("203.0.113.54:5353"),
	}
}

func texts(rows []policy.Failsafe) (out []string) {
	for i := range rows {
		yields := ""
		if rows[i].Yields {
			yields = " yields"
		}
		direction := map[[2]bool]string{{true, true}: " both ", {true, false}: " from ", {false, true}: " to "}[[2]bool{rows[i].In, rows[i].Out}]
		out = append(out, fmt.Sprint(rows[i].Name, ": ", rows[i].PortText(), direction, rows[i].Networks, yields))
	}
	return out
}

// TestTable is the whole table, in its order.
func TestTable(t *testing.T) {
	rows, missing := full().Rows()
	const nodePorts = "TCP 179 2379-2380 6443 6444 9345 10250, UDP 4789 6081 8472 51820-51821, IP-in-IP, ESP"
	want := []string{
		"SSH: TCP 22 from [0.0.0.0/0 ::/0]",
		"nodes: " + nodePorts + " both [192.0.2.1/32 192.0.2.2/32 203.0.113.0/28 2001:db8::2/128]",
		"API server: TCP 443 to [10.96.0.1/32]",
		"API server: TCP 6443 to [192.0.2.99/32]",
		"API server: TCP 6444 to [192.0.2.1/32]",
		"pods of this node: every protocol to [10.9.0.5/32 10.244.1.0/24]",
		"pods and Services: every protocol to [10.96.0.1/32 10.244.0.0/16 10.244.1.0/24 10.244.2.0/24] yields",
		"DNS of pods: UDP 53, TCP 53 from [10.9.0.5/32 10.244.1.0/24]",
		"pods to the API server: TCP 6444 from [10.244.0.0/16 10.244.1.0/24 10.244.2.0/24]",
		"API server to the kubelet: TCP 10250 from [192.0.2.1/32]",
		"resolvers: UDP 53, TCP 53 to [10.96.0.10/32 10.244.2.7/32 203.0.113.53/32 2001:db8:53::1/128]",
		"resolvers: UDP 5353, TCP 5353 to [203.0.113.54/32]",
		"time: UDP 123 to [0.0.0.0/0 ::/0]",
		"instance metadata: TCP 80 to [169.254.169.254/32 fd00:ec2::254/128]",
		"Corefile:7: TCP 443 to [198.51.100.0/24]",
	}
	if d := cmp.Diff(want, texts(rows)); d != "" || missing != "" {
		t.Errorf("missing %q (-want +got):\n%s", missing, d)
	}
	names := map[string]bool{}
	for i := range rows {
		name := rows[i].Name + rows[i].PortText()
		if names[name] {
			t.Errorf("two rows %s", name)
		}
		names[name] = true
	}
}

// TestAddressesBesideTheTable: a node is reached on the ports of nodes alone, and other hosts on none of them.
func TestAddressesBesideTheTable(t *testing.T) {
	rows, _ := full().Rows()
	for _, c := range []struct {
		protocol policy.Protocol
		to, row  string
	}{
		{policy.TCP, "192.0.2.2:10250", "nodes"},
		{policy.TCP, "192.0.2.2:10251", ""},
		{policy.TCP, "192.0.2.2:443", ""}, // the port of the Service
		{policy.UDP, "192.0.2.2:10250", ""},
		{policy.UDP, "[2001:db8::2]:8472", "nodes"},
		{policy.UDP, "[2001:db8::3]:8472", ""},
		{policy.UDP, "198.51.100.7:4789", ""}, // whatever a forwarding database has
		{policy.TCP, "198.51.100.7:179", ""},  // a router that has a session
		{policy.TCP, "203.0.113.15:179", "nodes"},
		{policy.TCP, "203.0.113.16:179", ""},
		{policy.ESP, "192.0.2.2:0", "nodes"},
		{47, "192.0.2.2:0", ""},
		{policy.TCP, "192.0.2.99:6443", "API server"},
		{policy.TCP, "192.0.2.99:10250", ""},
		{policy.UDP, "203.0.113.53:53", "resolvers"},
		{policy.TCP, "203.0.113.53:853", ""},
		{policy.UDP, "203.0.113.54:53", ""},
		{policy.UDP, "198.51.100.7:123", "time"},
		{policy.TCP, "198.51.100.7:123", ""},
		{policy.TCP, "169.254.169.254:80", "instance metadata"},
		{policy.TCP, "169.254.169.254:443", ""},
		{1, "10.244.1.9:0", "pods of this node"},
		{policy.TCP, "10.244.9.9:443", "pods and Services"},
		{policy.TCP, "198.51.100.7:443", "Corefile:7"},
		{policy.TCP, "198.51.101.7:443", ""},
	} {
		got := ""
		if i := slices.IndexFunc(rows, func(f policy.Failsafe) bool { return f.Out && f.Contains(c.protocol, netip.MustParseAddrPort(c.to)) }); i >= 0 {
			got = rows[i].Name
		}
		diff.Equal(t, c.row, got, "protocol", c.protocol, "to", c.to, "row")
	}
}

// TestMissing: what is not known, and which rows of the Corefile settle it. Rows that have nothing are
// no rows.
func TestMissing(t *testing.T) {
	row := func(p policy.Protocol, first, last uint16) policy.Failsafe {
		return policy.Failsafe{Out: true, Networks: prefixes("203.0.113.0/24"), Ports: []policy.PortRange{{Protocol: p, First: first, Last: last}}}
	}
	for name, c := range map[string]struct {
		change  func(*Inputs)
		missing string
	}{
		"a host without a cluster": {func(in *Inputs) { in.Cluster, in.APIServer = &policy.Cluster{}, "" }, ""},
		"no resolver":              {func(in *Inputs) { in.Resolvers = nil }, "write `failsafe out ADDRESS UDP 53`"},
		"no resolver, TCP 53":      {func(in *Inputs) { in.Resolvers, in.Config.Rows = nil, []policy.Failsafe{row(policy.TCP, 53, 53)} }, "write `failsafe out ADDRESS UDP 53`"},
		"no resolver, UDP 53":      {func(in *Inputs) { in.Resolvers, in.Config.Rows = nil, []policy.Failsafe{row(policy.UDP, 53, 53)} }, ""},
		"no resolver, a range": {func(in *Inputs) {
			in.Resolvers, in.Config.Rows = nil, []policy.Failsafe{{Out: true, Networks: prefixes("203.0.113.0/24")}}
		}, "write `failsafe out ADDRESS UDP 53`"},
		"no resolver, no table": {func(in *Inputs) { in.Resolvers, in.Config.None = nil, true }, ""},
		"a name":                {func(in *Inputs) { in.APIServer = "api.test:8443" }, "by the name api.test, and failsafes have addresses alone; write `failsafe out ADDRESS TCP 8443`"},
		"a name, its port": {func(in *Inputs) {
			in.APIServer, in.Config.Rows = "api.test:8443", []policy.Failsafe{row(policy.TCP, 8000, 9000)}
		}, ""},
		"a name, another port": {func(in *Inputs) {
			in.APIServer, in.Config.Rows = "api.test:8443", []policy.Failsafe{row(policy.TCP, 6443, 6443)}
		}, "by the name api.test"},
		"no address of a Node":       {func(in *Inputs) { in.Cluster.Nodes, in.Config.Nodes = nil, nil }, "no Node of the cluster has an address in its status; write `failsafe nodes NETWORK`"},
		"no address of another Node": {func(in *Inputs) { in.Cluster.Nodes = nil }, ""},
		"no endpoint":                {func(in *Inputs) { in.Cluster.APIServers.Endpoints = nil }, "write `failsafe in NETWORK TCP 10250`"},
		"no endpoint, to the kubelet": {func(in *Inputs) {
			in.Cluster.APIServers.Endpoints, in.Config.Rows = nil, []policy.Failsafe{row(policy.TCP, 10250, 10250)}
		}, "write `failsafe in NETWORK TCP 10250`"},
		"no endpoint, from it": {func(in *Inputs) {
			from := row(policy.TCP, 10250, 10250)
			from.In, from.Out = true, false
			in.Cluster.APIServers.Endpoints, in.Config.Rows = nil, []policy.Failsafe{from}
		}, ""},
		"IPv6": {func(in *Inputs) { in.APIServer = "[2001:db8::9]:6443" }, ""},
	} {
		in := full()
		c.change(in)
		rows, missing := in.Rows()
		if !strings.Contains(missing, c.missing) || c.missing == "" && missing != "" {
			t.Errorf("%s: %q, want %q", name, missing, c.missing)
		}
		if in.Config.None && len(rows) != len(in.Config.Rows) {
			t.Errorf("%s: %q", name, texts(rows))
		}
		for i := range rows {
			if len(rows[i].Networks) == 0 {
				t.Errorf("%s: the row %s has nothing", name, rows[i].Name)
			}
		}
	}
	// Sources on port 53 are no resolvers.
	in := full()
	in.Resolvers, in.Config.Rows = nil, []policy.Failsafe{{In: true, Networks: prefixes("203.0.113.0/24"), Ports: []policy.PortRange{{Protocol: policy.UDP, First: 53, Last: 53}}}}
	if _, missing := in.Rows(); missing == "" {
		t.Error("a row for what arrives is one for resolvers")
	}
	in = full()
	in.Cluster.Own.Addrs = nil
	if rows, _ := in.Rows(); slices.ContainsFunc(rows, func(f policy.Failsafe) bool { return f.Name == "pods to the API server" }) {
		t.Error("pods reach the API server on a node that serves none")
	}
	in.Cluster.Own.ProviderID = "kind://docker/n1"
	if rows, _ := in.Rows(); slices.ContainsFunc(rows, func(f policy.Failsafe) bool { return f.Name == "instance metadata" }) {
		t.Error("instance metadata outside of clouds")
	}
}
