package corefile

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func TestParseMinimalCorefile(t *testing.T) {
	c, err := Parse("Corefile", ". {\n forward . 10.96.0.10\n}\n")
	fatal.If(t, err)
	want := Default()
	want.File = "Corefile"
	want.Zones = []Zone{{To: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:53")}, MaxFails: 2, Timeout: time.Second, Deadline: 4 * time.Second, Probe: 250 * time.Millisecond}}
	diff.Error(t, want, c)
	if c.ClusterDomain.String() != "cluster.local" || c.Hold != 10*time.Minute || c.Mark != 0x40 || len(c.Bind) != 2 {
		t.Errorf("defaults %+v", c)
	}
}

// written is a failsafe of a line of the Corefile.
func written(line int, in bool, networks string, ports ...policy.PortRange) policy.Failsafe {
	f := policy.Failsafe{Name: fmt.Sprintf("Corefile:%d", line), In: in, Out: !in, Ports: ports}
	for n := range strings.FieldsSeq(networks) {
		f.Networks = append(f.Networks, netip.MustParsePrefix(n))
	}
	return f
}

func TestParseEverything(t *testing.T) {
	t.Setenv("NAMEGATE_TEST_DNS", "10.96.0.10")
	text := `
# a comment
.:53 {
    forward . {$NAMEGATE_TEST_DNS} [2001:db8::53]:5353 2001:db8::54 {
        policy sequential
        timeout 800ms
        deadline 3s
        max_fails 0
        health_check 5s
        max_concurrent 1000
        force_tcp
    }
    cache 2h {
        min_ttl 5s
        negative_ttl 1m
        prefetch 10 5m 20%
        serve_stale 3h
        entries 5000
        size 8MiB
    }
    forward special.test 198.51.100.53:5300
    bind 169.254.20.60
    bind 2001:db8::60
    intercept 10.96.0.10
    intercept 169.254.20.10
    cluster k8s.test 10.244.0.0/16 2001:db8:42::/56
    search corp.test lab.test.
    rebind allow ingress.test 10.96.7.0/24 10.96.8.1
    rebind allow Metadata.test 169.254.169.254
    nat64 2001:db8:64::/96
    failsafe out 2001:db8:1::/64 192.0.2.0/24 192.0.2.0/24 TCP 443 8000-8999
    failsafe out 192.0.2.7
    failsafe in 192.0.2.8 TCP 443
    failsafe none
    failsafe nodes 198.51.100.0/24
    failsafe nodes 2001:db8:2::7
    failclosed
    hold 1h
    dataplane nftables
    mark 128
    grant timeout 250ms
    ttl 5s 1h
    follow off
    audit /var/log/a.log {
        size 1GiB
        keep 0
        verdict denied would-deny failed
        namespace shop kube-system
        sample 100
    }
    limits {
        queries 100
        queries_per_pod 10
        rate_per_pod 50
        burst_per_pod 20
        connections 20
        connections_per_pod 5
        addresses 8
        grants 3000
        grants_per_pod 300
    }
    servernames {
        port 8443
        connections 2000
        connections_per_pod 200
        hellos 500
        hellos_per_pod 50
        grace 5m
    }
}
a.corp.test corp.test {
    forward . 192.0.2.53 {
        policy round_robin
    }
}
`
	c, err := Parse("Corefile", text)
	fatal.If(t, err)
	to := netip.MustParseAddrPort
	kept := &Cache{MinTTL: 5 * time.Second, MaxTTL: 2 * time.Hour, NegativeTTL: time.Minute, Prefetch: Prefetch{10, 5 * time.Minute, 20}, ServeStale: 3 * time.Hour}
	want := &Config{
		File: "Corefile",
		Zones: []Zone{
			{Name: policytest.Name("a.corp.test"), To: []netip.AddrPort{to("192.0.2.53:53")}, Policy: RoundRobin, MaxFails: 2, Timeout: time.Second, Deadline: 4 * time.Second, Probe: 250 * time.Millisecond},
			{Name: policytest.Name("special.test"), To: []netip.AddrPort{to("198.51.100.53:5300")}, MaxFails: 2, Timeout: time.Second, Deadline: 4 * time.Second, Probe: 250 * time.Millisecond, Cache: kept},
			{Name: policytest.Name("corp.test"), To: []netip.AddrPort{to("192.0.2.53:53")}, Policy: RoundRobin, MaxFails: 2, Timeout: time.Second, Deadline: 4 * time.Second, Probe: 250 * time.Millisecond},
			{To: []netip.AddrPort{to("10.96.0.10:53"), to("[2001:db8::53]:5353"), to("[2001:db8::54]:53")}, Policy: Sequential, Timeout: 800 * time.Millisecond, Deadline: 3 * time.Second,
				Probe: 5 * time.Second, MaxConcurrent: 1000, ForceTCP: true, Cache: kept},
		},
		Bind:          []netip.Addr{netip.MustParseAddr("169.254.20.60"), netip.MustParseAddr("2001:db8::60")},
		Intercept:     []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("169.254.20.10")},
		ClusterDomain: policytest.Name("k8s.test"),
		ClusterRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("2001:db8:42::/56")},
		Search:        []fqdn.Name{policytest.Name("corp.test"), policytest.Name("lab.test")},
		Rebind: []RebindAllow{
			{policytest.Name("ingress.test"), netip.MustParsePrefix("10.96.7.0/24")},
			{policytest.Name("ingress.test"), netip.MustParsePrefix("10.96.8.1/32")},
			{policytest.Name("metadata.test"), netip.MustParsePrefix("169.254.169.254/32")},
		},
		NAT64: []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")},
		Failsafe: failsafe.Config{
			None: true, Nodes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:2::7/128")},
			Rows: []policy.Failsafe{
				written(31, false, "192.0.2.0/24 2001:db8:1::/64", policy.PortRange{Protocol: policy.TCP, First: 443, Last: 443}, policy.PortRange{Protocol: policy.TCP, First: 8000, Last: 8999}),
				written(32, false, "192.0.2.7/32"),
				written(33, true, "192.0.2.8/32", policy.PortRange{Protocol: policy.TCP, First: 443, Last: 443}),
			},
		},
		FailClosed: true, Hold: time.Hour, Dataplane: NFTables, Mark: 0x80, Candidate: 0x20, Accepted: 0x10, GrantTimeout: 250 * time.Millisecond,
		Audit:        Audit{Path: "/var/log/a.log", Size: 1 << 30, Keep: 0},
		AuditFilter:  audit.Filter{Verdicts: []string{"denied", "would-deny", "failed"}, Namespaces: []string{"shop", "kube-system"}, Sample: 100},
		Limits:       Limits{Queries: 100, QueriesPerPod: 10, RatePerPod: 50, BurstPerPod: 20, Connections: 20, ConnectionsPerPod: 5, Addresses: 8, Grants: 3000, GrantsPerPod: 300},
		CacheEntries: 5000, CacheBytes: 8 << 20, TTL: TTL{5, 3600},
		ServerNames: ServerNames{Port: 8443, RelayLimits: RelayLimits{Connections: 2000, ConnectionsPerPod: 200, Hellos: 500, HellosPerPod: 50}, Grace: 5 * time.Minute},
	}
	diff.Error(t, want, c)
	for q, zone := range map[string]string{"x.a.corp.test": "a.corp.test", "b.corp.test": "corp.test", "notcorp.test": ".", ".": "."} {
		if i := slices.IndexFunc(c.Zones, func(z Zone) bool { return policytest.Name(q).HasSuffix(z.Name) }); i < 0 || c.Zones[i].Name.String() != zone {
			t.Errorf("%s is of zone %d of %v, want %s", q, i, c.Zones, zone)
		}
	}
}

// TestBadFiles: each mistake is named with its line, its directive and a remedy.
func TestBadFiles(t *testing.T) {
	for _, tt := range []struct{ name, directives, want string }{
		{"no upstream", "forward .", `forward: has too few values, write "forward . ADDRESS…"`},
		{"an upstream's name", "forward . dns.example.org", `"dns.example.org" is not an address, write ADDRESS, ADDRESS:PORT or a Service as NAME.NAMESPACE`},
		{"a broken address", "forward . 192.0.2.256", `"192.0.2.256" is not an address`},
		{"half an address", "forward . 10.96", `"10.96" is not an address`},
		{"a broken IPv6 address", "forward . 2001:db8::g", `"2001:db8::g" is not an address`},
		{"a Service without namespace", "forward . kube-dns", `a Service needs its namespace, write for example kube-dns.kube-system`},
		{"a Service with a port", "forward . kube-dns.kube-system:53", "has a port, which the Service itself defines, write kube-dns.kube-system instead"},
		{"a Service's long name", "forward . kube-dns.kube-system.svc.cluster.local", "write kube-dns.kube-system instead"},
		{"a Service with a dot", "forward . kube-dns.kube-system.", "write kube-dns.kube-system instead"},
		{"a Service in capitals", "forward . Kube-DNS.kube-system", "write kube-dns.kube-system instead"},
		{"a Service with an underscore", "forward . kube_dns.kube-system", "neither an address nor a Service"},
		{"a Service with a hyphen first", "forward . -dns.kube-system", "neither an address nor a Service"},
		{"a Service with a hyphen last", "forward . kube-dns.kube-system-", "neither an address nor a Service"},
		{"an empty namespace", "forward . kube-dns..svc", "neither an address nor a Service"},
		{"a Service twice", "forward . kube-dns.kube-system kube-dns.kube-system", "kube-dns.kube-system is there twice"},
		{"a namespace of 64 letters", "forward . dns." + strings.Repeat("a", 64), "neither an address nor a Service"},
		{"resolv.conf", "forward . /etc/resolv.conf", `is a file, write the addresses`},
		{"TLS", "forward . tls://192.0.2.1", "has a scheme"},
		{"port 0", "forward . 192.0.2.1:0", "cannot be asked"},
		{"unspecified", "forward . 0.0.0.0", "cannot be asked"},
		{"twice", "forward . 192.0.2.1 192.0.2.1:53", "is there twice"},
		{"the endpoint", "forward . 169.254.20.53", "would ask itself"},
		{"another policy", "forward . 192.0.2.1 {\n policy fastest\n}", `"fastest" is not an order, write random, round_robin or sequential`},
		{"the endpoint's other port", "forward . 169.254.20.53:5353", "would ask itself"},
		{"a serving address", "forward . 169.254.20.64", "an address that the agent serves on"},
		{"the last serving address", "forward . 169.254.20.254", "an address that the agent serves on"},
		{"a serving address of IPv6", "forward . fd5c:7a1e:93b4::1:ff", "an address that the agent serves on"},
		{"from a wildcard", "forward *.corp.test 192.0.2.1", "no wildcards and holds every name below it, write it as corp.test"},
		{"forward's option", "forward . 192.0.2.1 {\n colour red\n}", "colour: is not an option of forward, write policy, timeout, deadline, max_fails, health_check, max_concurrent or force_tcp"},
		{"timeout", "forward . 192.0.2.1 {\n timeout 1h\n}", "1h is out of bounds, write 50ms to 4s"},
		{"no unit", "forward . 192.0.2.1 {\n timeout 1\n}", `"1" is not a duration`},
		{"deadline", "forward . 192.0.2.1 {\n timeout 2s\n deadline 1s\n}", "deadline 1s is below timeout 2s"},
		{"max_fails", "forward . 192.0.2.1 {\n max_fails many\n}", `"many" is not a whole number`},
		{"an option twice", "forward . 192.0.2.1 {\n timeout 1s\n timeout 2s\n}", "timeout: stands in line 3 already, write it once"},
		{"health_check too often", "forward . 192.0.2.1 {\n health_check 49ms\n}", "health_check: 49ms is out of bounds, write 50ms to 10s"},
		{"health_check too seldom", "forward . 192.0.2.1 {\n health_check 11s\n}", "write 50ms to 10s"},
		{"health_check of nothing", "forward . 192.0.2.1 {\n health_check\n}", `has 0 values instead of one, write "health_check 250ms"`},
		{"health_check's question", "forward . 192.0.2.1 {\n health_check 5s domain example.org\n}", `write "health_check 5s" without domain example.org`},
		{"max_concurrent", "forward . 192.0.2.1 {\n max_concurrent -1\n}", "max_concurrent: -1 is out of bounds, write 0 to 1048576"},
		{"max_concurrent of none", "forward . 192.0.2.1 {\n max_concurrent\n}", `write "max_concurrent 1000"`},
		{"force_tcp", "forward . 192.0.2.1 {\n force_tcp on\n}", "force_tcp: has no value, write it alone"},
		{"two forwards", "forward . 192.0.2.1\n forward . 192.0.2.2", "has a forward in line 2 already"},
		{"sixteen", "forward . 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7 192.0.2.8 192.0.2.9 192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13 192.0.2.14 192.0.2.15 192.0.2.16", "at most 15"},
		{"fifteen and a Service", "forward . 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7 192.0.2.8 192.0.2.9 192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13 192.0.2.14 192.0.2.15 a.b", "has 16 addresses and Services, write at most 15"},
		{"from", "forward a..b 192.0.2.1", "an empty label"},
		{"bind nothing", "bind", "has no address"},
		{"bind a port", "bind 192.0.2.1:53", "without port"},
		{"bind all", "bind 0.0.0.0", "cannot be one host's"},
		{"bind a zone", "bind fe80::1%eth0", "cannot be one host's"},
		{"bind twice", "bind 192.0.2.1\n bind 192.0.2.1", "is there twice"},
		{"bind a block", "bind 192.0.2.1 {\n x\n}", "has no block"},
		{"intercept the endpoint", "intercept 169.254.20.53", "needs no interception"},
		{"intercept a serving address", "intercept fd5c:7a1e:93b4::1:0", "needs no interception"},
		{"bind a serving address", "bind 169.254.20.100", "one of the addresses that the agent takes"},
		{"cluster", "cluster", "has no domain"},
		{"cluster of all", "cluster .", "every name there is"},
		{"cluster range", "cluster cluster.local 10.96.0.1/12", "write 10.96.0.0/12 instead"},
		{"cluster address", "cluster cluster.local 10.96.0.1", "is not a range"},
		{"cluster twice", "cluster a.test\n cluster b.test", "stands in line 3 already"},
		{"search", "search", "has no suffix"},
		{"search of all", "search .", "every name there is"},
		{"rebind", "rebind ingress.test 10.0.0.0/8", `write "rebind allow SUFFIX CIDR…"`},
		{"rebind all names", "rebind allow . 10.0.0.0/8", "every name there is"},
		{"rebind all addresses", "rebind allow a.test 0.0.0.0/0", "can never be opened whole"},
		{"rebind loopback", "rebind allow a.test 127.0.0.1", "can never be"},
		{"nat64", "nat64 2001:db8::/65", "32, 40, 48, 56, 64 or 96"},
		{"nat64 of IPv4", "nat64 192.0.2.0/32", "cannot be a translation prefix"},
		{"nat64 empty", "nat64", "has no range"},
		{"failclosed", "failclosed on", "has no value"},
		{"failsafe of nothing", "failsafe", `has no word, write "out CIDR…" or "in CIDR…", with "PROTOCOL PORT…" behind it or not, "nodes CIDR…" or "none"`},
		{"failsafe of another word", "failsafe 192.0.2.0/24", `"192.0.2.0/24" is no line of the table, write "out CIDR…"`},
		{"failsafe of no source", "failsafe in", "is no line of the table"},
		{"failsafe of every source", "failsafe in 0.0.0.0/0", "0.0.0.0/0 is every address, so that no policy for nodes would hold, write a range or a port"},
		{"failsafe of none and more", "failsafe none 192.0.2.0/24", "is no line of the table"},
		{"failsafe of no nodes", "failsafe nodes", "is no line of the table"},
		{"failsafe of no destination", "failsafe out", "is no line of the table"},
		{"failsafe of nodes with a port", "failsafe nodes 192.0.2.1 TCP 443", `"TCP" is not a range, write ADDRESS/BITS`},
		{"failsafe of a protocol alone", "failsafe out TCP 443", "has no address"},
		{"failsafe of a name", "failsafe out ntp.test UDP 123", `"ntp.test" is not a range`},
		{"failsafe with a port behind its address", "failsafe out 192.0.2.1:443", `"192.0.2.1:443" is not a range`},
		{"failsafe of host bits", "failsafe out 192.0.2.1/24 TCP 443", "192.0.2.1/24 has bits set beyond its length, write 192.0.2.0/24 instead"},
		{"failsafe of an interface", "failsafe out fe80::1%eth0 TCP 443", `"fe80::1%eth0" is not a range`},
		{"failsafe of a mapped address", "failsafe out ::ffff:192.0.2.1 TCP 443", `"::ffff:192.0.2.1/128" is not a range`},
		{"failsafe of port 0", "failsafe out 192.0.2.1 TCP 0", `"0" is no port from 1 to 65535`},
		{"failsafe of no port", "failsafe out 192.0.2.1 TCP", "TCP has no port, write for example TCP 443"},
		{"failsafe of a high port", "failsafe out 192.0.2.1 TCP 65536", `"65536" is no port from 1 to 65535`},
		{"failsafe of a service", "failsafe out 192.0.2.1 TCP https", `"https" is no port from 1 to 65535`},
		{"failsafe of a range backwards", "failsafe out 192.0.2.1 TCP 20-10", `"20-10" is no port from 1 to 65535 and no range of them`},
		{"failsafe of half a range", "failsafe out 192.0.2.1 TCP 20-", `"20-" is no port from 1 to 65535 and no range of them`},
		{"failsafe of ICMP", "failsafe out 192.0.2.1 ICMP 1", `"ICMP" is neither an address nor a protocol with ports, write TCP, UDP or SCTP`},
		{"failsafe of TCP in small letters", "failsafe out 192.0.2.1 tcp 1", `"tcp" is neither an address nor a protocol with ports`},
		{"failsafe of everything", "failsafe out 192.0.2.1 ::/0", "::/0 is every address, so that no policy for nodes would hold, write a range or a port"},
		{"failsafe nodes of everything", "failsafe nodes 0.0.0.0/0", "0.0.0.0/0 is every address, write the ranges of the nodes"},
		{"failsafe's block", "failsafe out 192.0.2.1 {\n x\n}", "has no block"},
		{"hold", "hold ten", `write for example "hold 10m"`},
		{"hold too long", "hold 25h", "out of bounds"},
		{"hold nothing", "hold", "has 0 values instead of one"},
		{"another dataplane", "dataplane ebpf", `"ebpf" is not a dataplane, write auto, iptables or nftables`},
		{"dataplane in capitals", "dataplane NFTables", `"NFTables" is not a dataplane`},
		{"dataplane of nothing", "dataplane", `has 0 values instead of one, write "dataplane auto"`},
		{"two dataplanes", "dataplane iptables nftables", "has 2 values instead of one"},
		{"dataplane twice", "dataplane auto\n dataplane auto", "stands in line 3 already, write it once"},
		{"dataplane's block", "dataplane auto {\n x\n}", "has no block"},
		{"mark of two bits", "mark 0x60", "is not one bit"},
		{"mark of none", "mark 0", "is not one bit"},
		{"mark without a bit", "mark", "has 0 values instead of one to three"},
		{"mark of four", "mark 1 2 4 8", "has 4 values instead of one to three"},
		{"mark twice", "mark 0x40 64", "has one bit twice"},
		{"third mark twice", "mark 1 2 2", "has one bit twice"},
		{"second mark of two bits", "mark 0x40 0x3", "is not one bit"},
		{"mark too high", "mark 0x100000000", "is not one bit"},
		{"grant", "grant 500ms", `write "grant timeout 500ms"`},
		{"grant timeout", "grant timeout 10s", "out of bounds"},
		{"audit", "audit log.txt", "neither stdout, off nor a file's full path"},
		{"audit option", "audit /a {\n age 5\n}", "is not an option of audit"},
		{"audit size", "audit /a {\n size 100 MB\n}", "has 2 values"},
		{"audit size unit", "audit /a {\n size 100MB\n}", "is not a size"},
		{"audit size small", "audit /a {\n size 1k\n}", `"1k" is out of bounds, write 64KiB to 1024GiB`},
		{"audit keep twice", "audit /a {\n keep 1\n keep 1\n}", "keep: stands in line 4 already, write it once"},
		{"audit size of stdout", "audit stdout {\n size 1M\n}", "Corefile:4: audit: size: is of a file, and this log is the standard output; remove the line"},
		{"audit keep of stdout", "audit stdout {\n keep 1\n}", "keep: is of a file"},
		{"audit off", "audit off {\n verdict denied\n}", "is off and has no options, remove the block"},
		{"audit verdict", "audit stdout {\n verdict dropped\n}", `"dropped" is not a verdict, write of allowed, unmatched, refused, blocked, failed, renewed, denied, would-deny`},
		{"audit no verdict", "audit stdout {\n verdict\n}", "verdict: has no value, write at least one"},
		{"audit verdict twice", "audit stdout {\n verdict denied denied\n}", "denied is there twice, write it once"},
		{"audit verdicts twice", "audit stdout {\n verdict denied\n verdict failed\n}", "verdict: stands in line 4 already, write it once"},
		{"audit namespace", "audit stdout {\n namespace shop Web\n}", `"Web" is not a namespace, write names such as shop`},
		{"audit sample", "audit stdout {\n sample 10%\n}", `"10%" is not a whole number, write for example "sample 10"`},
		{"limits", "limits 5", "is a block"},
		{"limit", "limits {\n cpu 5\n}", "is not a bound"},
		{"limit 0", "limits {\n queries 0\n}", "out of bounds"},
		{"a limit twice", "limits {\n queries 5\n queries 6\n}", "queries: stands in line 4 already, write it once"},
		{"limits crossed", "limits {\n queries 5\n queries_per_pod 6\n}", "above the bound of all"},
		{"servernames", "servernames 8443", "is a block"},
		{"a server name's option", "servernames {\n timeout 3s\n}", "is not an option of servernames, write port, connections, connections_per_pod, hellos, hellos_per_pod or grace"},
		{"connections crossed", "servernames {\n connections 1023\n}", "servernames: the bound of one pod is above the bound of all"},
		{"hellos crossed", "servernames {\n hellos_per_pod 1025\n}", "servernames: the bound of one pod is above the bound of all"},
		{"an option's block", "limits {\n queries 5 {\n }\n}", "queries: has no block of its own"},
		{"unknown", "frobnicate", "is not a directive, write one of audit, bind, cache, cluster, dataplane, failclosed, failsafe, follow, forward,"},
		{"kubernetes", "kubernetes cluster.local {\n pods insecure\n}", "answered by the upstream"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := ". {\n" + tt.directives + "\n"
			if !strings.HasPrefix(tt.directives, "forward .") {
				text = ". {\nforward . 192.0.2.1\n" + tt.directives + "\n"
			}
			_, err := Parse("dir/Corefile", text+"}\n")
			if err == nil {
				t.Fatal("it was taken")
			}
			directive, _, _ := strings.Cut(tt.directives, " ")
			directive, _, _ = strings.Cut(directive, "\n")
			if s := err.Error(); !strings.Contains(s, tt.want) || !strings.Contains(s, "dir/Corefile:") || !strings.Contains(s, ": "+directive) {
				t.Errorf("error %q, want %q in it", s, tt.want)
			}
		})
	}
}

func TestBadZones(t *testing.T) {
	const good = ". {\nforward . 192.0.2.1\n}\n"
	for text, want := range map[string]string{
		"":                                                 `Corefile:1: forward: the root zone has none, write "forward . ADDRESS"`,
		". {\n}":                                           `the root zone has none`,
		"corp.test {\nforward . 192.0.2.1\n}":              `the root zone has none`,
		"{\n hold 10m\n}\n" + good:                         `Corefile:1: {: the block has no zone, write ". {"`,
		good + "{\n hold 10m\n}":                           `Corefile:4: {: the block has no zone`,
		"dns://. {\nforward . 192.0.2.1\n}":                "without a scheme",
		".:5353 {\nforward . 192.0.2.1\n}":                 `the port is always 53, write "." instead`,
		":53 {\nforward . 192.0.2.1\n}":                    "the zone is empty",
		"a..b {\nforward . 192.0.2.1\n}":                   "an empty label",
		good + "corp.test {\nhold 10m\n}":                  `Corefile:5: hold: is an option of the whole agent, write it in the block of zone "." instead`,
		good + "corp.test {\nforward x.test 192.0.2.1\n}":  "x.test is not at or below the zone corp.test",
		"*.corp.test {\nforward . 192.0.2.1\n}\n" + good:   "no wildcards and holds every name below it, write it as corp.test",
		"10.0.0.0/8 {\nforward . 192.0.2.1\n}\n" + good:    "write its reverse zone such as 10.in-addr.arpa",
		"2001:db8::/32 {\nforward . 192.0.2.1\n}\n" + good: "a range is no zone",
		good + good:                                        "the zone . has a forward in line 2 already",
		". {\nforward . 192.0.2.1\n":                       "parse the configuration",
		". {\nimport nowhere\n}\n":                         "parse the configuration",
	} {
		_, err := Parse("Corefile", text)
		diff.Fails(t, want, err, text)
	}
}

func TestAllMistakesAreNamed(t *testing.T) {
	_, err := Parse("Corefile", ". {\nforward . 192.0.2.1\nhold ten\nmark 3\ncache 0\n}")
	if err == nil {
		t.Fatal("it was taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "Corefile:3: hold: ") || !strings.HasPrefix(lines[1], "Corefile:4: mark: ") || !strings.HasPrefix(lines[2], "Corefile:5: cache: ") {
		t.Errorf("errors %q", lines)
	}
}

func TestLoadFollowsImports(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "Corefile")
	write := func(p, text string) {
		fatal.If(t, os.WriteFile(p, []byte(text), 0o600))
	}
	write(path, ". {\nforward . 192.0.2.1\nimport more\n}\n")
	write(filepath.Join(dir, "more"), "hold 5m\n")
	c, err := Load(path)
	if err != nil || c.Hold != 5*time.Minute || c.File != path {
		t.Errorf("%+v, %v", c, err)
	}
	write(filepath.Join(dir, "more"), "\nhold x\n")
	if _, err = Load(path); err == nil || !strings.Contains(err.Error(), "more:2: hold: ") {
		t.Errorf("error %v", err)
	}
	if _, err = Load(filepath.Join(dir, "absent")); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("error %v", err)
	}
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

func TestMarks(t *testing.T) {
	for text, want := range map[string][3]uint32{
		"": {0x40, 0x20, 0x10}, "mark 0x100": {0x100, 0x20, 0x10}, "mark 0x20": {0x20, 0x40, 0x10}, "mark 0x20 0x100": {0x20, 0x100, 0x10},
		"mark 0x40 1": {0x40, 1, 0x10}, "mark 0x10": {0x10, 0x20, 0x40}, "mark 1 2 4": {1, 2, 4},
	} {
		c, err := Parse("Corefile", ". {\nforward . 192.0.2.1\n"+text+"\n}")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := [3]uint32{c.Mark, c.Candidate, c.Accepted}; got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}
