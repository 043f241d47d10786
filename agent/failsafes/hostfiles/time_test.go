package hostfiles

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/testkit/fatal"
)

type target = failsafe.Target

func TestTimeServers(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"none", nil, nil},
		{"chrony of Debian", map[string]string{
			"/etc/chrony/chrony.conf": "# Welcome\nconfdir /etc/chrony/conf.d\npool 2.debian.pool.ntp.test iburst\nsourcedir /run/chrony-dhcp\nsourcedir /etc/chrony/sources.d\n" +
				"keyfile /etc/chrony/chrony.keys\nmakestep 1 3\n",
			"/etc/chrony/conf.d/10-own.conf":      "server 192.0.2.123 iburst port 1123\n! server commented.test\n% server commented.test\n",
			"/etc/chrony/conf.d/README":           "server readme.test\n",
			"/etc/chrony/sources.d/own.sources":   "peer 2001:db8::123\n",
			"/run/chrony-dhcp/eth0.sources":       "server 198.51.100.123 iburst\n",
			"/etc/chrony/sources.d/none.disabled": "server disabled.test\n",
		}, []string{"192.0.2.123 udp/1123", "2.debian.pool.ntp.test udp/123", "198.51.100.123 udp/123", "2001:db8::123 udp/123"}},
		{"chrony of Red Hat with NTS", map[string]string{
			"/etc/chrony.conf":     "Server time.test. iburst NTS ; no comment here\nserver other.test nts ntsport 14460\nrefclock PHC /dev/ptp0\nserver 127.0.0.1\ninclude /etc/chrony.d/*.conf\n",
			"/etc/chrony.d/a.conf": "include /etc/chrony.d/*.conf\npool pool.test maxsources 4 # four\n", "/etc/chrony.d/b.txt": "server no.test\n",
		}, []string{"time.test udp/123", "time.test tcp/4460", "other.test udp/123", "other.test tcp/14460", "pool.test udp/123"}},
		{"one confdir of two", map[string]string{"/etc/chrony.conf": "confdir /etc/chrony.d /usr/share/chrony.d\n", "/etc/chrony.d/a.conf": "server etc.test\n",
			"/usr/share/chrony.d/a.conf": "server usr.test\n", "/usr/share/chrony.d/b.conf": "server b.test\n"}, []string{"etc.test udp/123", "b.test udp/123"}},
		{"timesyncd", map[string]string{"/etc/systemd/timesyncd.conf": "[Time]\nNTP=a.test 192.0.2.1\n#FallbackNTP=compiled.test\n",
			"/etc/systemd/timesyncd.conf.d/x.conf": "[Time]\nFallbackNTP=fallback.test\n"}, []string{"a.test udp/123", "192.0.2.1 udp/123", "fallback.test udp/123"}},
		{"timesyncd as it was built", map[string]string{"/etc/systemd/timesyncd.conf": "[Time]\n#NTP=\n#FallbackNTP=0.ubuntu.test 1.ubuntu.test\n",
			"/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service": "-> /usr/lib/systemd/system/systemd-timesyncd.service"}, []string{"0.ubuntu.test udp/123", "1.ubuntu.test udp/123"}},
		{"timesyncd that is not enabled", map[string]string{"/etc/systemd/timesyncd.conf": "[Time]\n#FallbackNTP=0.ubuntu.test\n"}, nil},
		{"timesyncd with a lease", map[string]string{"/run/systemd/netif/state": "# This is private data.\nOPER_STATE=routable\nDNS=192.0.2.53\nNTP=192.0.2.9 ntp.lease.test\n",
			"/etc/systemd/timesyncd.conf": "[Time]\n#FallbackNTP=0.ubuntu.test\n"}, []string{"192.0.2.9 udp/123", "ntp.lease.test udp/123"}},
		{"ntpd", map[string]string{"/etc/ntp.conf": "driftfile /var/lib/ntp/drift\nrestrict default kod\nserver 127.127.1.0 # clock\npool -4 0.pool.test iburst\nserver ntp.test\nincludefile \"more.conf\"\n",
			"/etc/more.conf": "peer 192.0.2.5\n"}, []string{"0.pool.test udp/123", "ntp.test udp/123", "192.0.2.5 udp/123"}},
		{"NTPsec", map[string]string{"/etc/ntpsec/ntp.conf": "server time.test nts\n"}, []string{"time.test udp/123", "time.test tcp/4460"}},
		{"openntpd", map[string]string{"/etc/openntpd/ntpd.conf": "listen on *\nservers pool.test\nserver 192.0.2.6 weight 5\nsensor *\nconstraints from \"https://www.test\"\nconstraint from 192.0.2.7\n"},
			[]string{"pool.test udp/123", "192.0.2.6 udp/123", "www.test tcp/443", "192.0.2.7 tcp/443"}},
	} {
		got, err := host(c.files).TimeServers()
		fatal.If(t, err)
		equal(t, c.name, lines(got), c.want...)
	}
	enabled := map[string]string{"/etc/systemd/system/multi-user.target.wants/chrony.service": "-> /usr/lib/systemd/system/chrony.service"}
	if _, err := host(enabled).TimeServers(); err == nil || !strings.Contains(err.Error(), "chrony.service is enabled, and its configuration (/etc/chrony.conf or /etc/chrony/chrony.conf) is not there; let the agent read it") {
		t.Errorf("an enabled daemon without its file: %v", err)
	}
	if got, err := host(with(enabled, "/etc/chrony/chrony.conf", "# no server\n")).TimeServers(); got != nil || err != nil {
		t.Errorf("an enabled daemon with its file: %v, %v", got, err)
	}
	if _, err := host(map[string]string{"/etc/chrony.conf": "-> chrony.conf"}).TimeServers(); err == nil {
		t.Error("a file that cannot be read is no error")
	}
}

const stub = "# This is /run/systemd/resolve/stub-resolv.conf\nnameserver 127.0.0.53\noptions edns0 trust-ad ndots:2\nsearch corp.test lab.test\n"

func TestResolvers(t *testing.T) {
	stubbed := map[string]string{"/etc/resolv.conf": "-> ../run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/stub-resolv.conf": stub,
		"/run/systemd/resolve/resolv.conf": "nameserver 192.0.2.53\nnameserver fe80::1%eth0\n"}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
		local bool
	}{
		{"plain", map[string]string{"/etc/resolv.conf": "; comment\nnameserver 192.0.2.53\nnameserver\t2001:db8::53 # comment\nnameserver none\n"},
			[]string{"192.0.2.53 udp/53", "192.0.2.53 tcp/53", "2001:db8::53 udp/53", "2001:db8::53 tcp/53"}, false},
		{"systemd-resolved", stubbed, []string{"192.0.2.53 udp/53", "192.0.2.53 tcp/53", "fe80::1 udp/53", "fe80::1 tcp/53"}, false},
		{"over TLS", with(stubbed, "/etc/systemd/resolved.conf.d/tls.conf", "[Resolve]\nDNSOverTLS=opportunistic\n"),
			[]string{"192.0.2.53 udp/53", "192.0.2.53 tcp/53", "192.0.2.53 tcp/853", "fe80::1 udp/53", "fe80::1 tcp/53", "fe80::1 tcp/853"}, false},
		{"servers with ports", with(map[string]string{"/etc/resolv.conf": stub}, "/etc/systemd/resolved.conf", "[Resolve]\nDNS=192.0.2.54:5353#dns.test [2001:db8::54]:853\nFallbackDNS=192.0.2.55#x\nDNSOverTLS=no\n"),
			[]string{"192.0.2.54 udp/5353", "192.0.2.54 tcp/5353", "2001:db8::54 udp/853", "2001:db8::54 tcp/853", "192.0.2.55 udp/53", "192.0.2.55 tcp/53"}, false},
		{"a stub alone", map[string]string{"/etc/resolv.conf": stub}, nil, true},
		{"a stub without servers", with(stubbed, "/run/systemd/resolve/resolv.conf", "# none\n"), nil, true},
		{"dnsmasq of NetworkManager", map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.1\n", "/run/NetworkManager/no-stub-resolv.conf": "nameserver 192.0.2.56\n"},
			[]string{"192.0.2.56 udp/53", "192.0.2.56 tcp/53"}, false},
		{"a local one beside another", map[string]string{"/etc/resolv.conf": "nameserver ::1\nnameserver 192.0.2.53\n"}, []string{"192.0.2.53 udp/53", "192.0.2.53 tcp/53"}, true},
		{"no server", map[string]string{"/etc/resolv.conf": "search corp.test\n"}, nil, true},
	} {
		got, err := host(c.files).Resolvers()
		fatal.If(t, err)
		equal(t, c.name, lines(got.Targets), c.want...)
		if got.Local != c.local {
			t.Errorf("%s: local %v", c.name, got.Local)
		}
	}
	r, err := host(stubbed).Resolvers()
	fatal.If(t, err)
	equal(t, "search list", r.Config.Search, "corp.test", "lab.test")
	if r.Config.Ndots != 2 || len(r.Config.Servers) != 1 || r.Config.Servers[0] != netip.MustParseAddr("127.0.0.53") {
		t.Errorf("%+v", r.Config)
	}
	if _, err := host(nil).Resolvers(); err == nil || !strings.Contains(err.Error(), "/etc/resolv.conf: file does not exist") {
		t.Errorf("without resolv.conf: %v", err)
	}
}

func TestHosts(t *testing.T) {
	hosts, err := host(map[string]string{"/etc/hosts": "127.0.0.1 localhost\n192.0.2.10\tAPI.test. api # the load balancer\n2001:db8::10 api\nx api\n192.0.2.11\n"}).Hosts()
	fatal.If(t, err)
	var got []string
	for _, name := range []string{"localhost", "api.test", "api"} {
		for _, a := range hosts[name] {
			got = append(got, name+" "+a.String())
		}
	}
	equal(t, "hosts", got, "localhost 127.0.0.1", "api.test 192.0.2.10", "api 192.0.2.10", "api 2001:db8::10")
	if hosts, err := host(nil).Hosts(); len(hosts) > 0 || err != nil {
		t.Errorf("without a file: %v, %v", hosts, err)
	}
}
