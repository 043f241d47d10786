package hostfiles

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// ReasonTime is the reason of time servers.
const ReasonTime = "time"

// The ports of NTP (RFC 5905), of the key exchange of NTS (RFC 8915), and of openntpd's
// constraints, which are HTTPS.
const (
	ntpPort, ntsPort uint16 = 123, 4460
	httpsPort        uint16 = 443
)

// maxIncludes bounds how deep files of chrony and ntpd include others.
const maxIncludes = 10

// timeServers gathers the time servers of the host.
type timeServers struct {
	root    Root
	targets []failsafe.Target
}

// daemon is a program that sets the time.
type daemon struct {
	files []string // of its configuration, as distributions have it
	units []string // its services
	read  func(file string, words []string, depth int) error
}

func (t *timeServers) daemons() []daemon {
	return []daemon{
		{[]string{"/etc/chrony.conf", "/etc/chrony/chrony.conf"}, []string{"chrony.service", "chronyd.service"}, t.chrony},
		{[]string{"/etc/ntp.conf", "/etc/ntp/ntp.conf", "/etc/ntpsec/ntp.conf"}, []string{"ntp.service", "ntpsec.service"}, t.ntpd},
		{[]string{"/etc/ntpd.conf", "/etc/openntpd/ntpd.conf"}, []string{"openntpd.service"}, t.openntpd},
	}
}

// TimeServers returns the time servers in the configurations of chrony, systemd-timesyncd,
// ntpd, NTPsec and openntpd. A host without such a file has none. An enabled service without
// its file is an error: the agent does not see the file.
func (r Root) TimeServers() ([]failsafe.Target, error) {
	t := timeServers{root: r}
	for _, d := range t.daemons() {
		seen := slices.ContainsFunc(d.files, r.there)
		for _, unit := range d.units {
			if !seen && r.there("/etc/systemd/system/multi-user.target.wants/"+unit) {
				return nil, fmt.Errorf("%s is enabled, and its configuration (%s) is not there; let the agent read it (nodes.hostFiles or nodes.hostFolders of the chart)", unit, strings.Join(d.files, " or "))
			}
		}
		for _, file := range d.files {
			if err := t.included(file, d.read, 0); err != nil {
				return nil, err
			}
		}
	}
	if err := t.timesyncd(); err != nil {
		return nil, err
	}
	return t.targets, nil
}

func (t *timeServers) add(host string, protocol policy.Protocol, port uint16, file string) {
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "" || isClock(host) {
		return
	}
	target := failsafe.Target{Host: host, Ports: failsafe.Port(protocol, port), Reason: ReasonTime, Source: file}
	if !slices.Contains(t.targets, target) {
		t.targets = append(t.targets, target)
	}
}

// isClock tells whether a server is on the host: loopback, of which ntpd takes 127.127.x.x
// for the clocks that are connected to it.
func isClock(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost"
}

// included reads the lines of a file, which are those of a program.
func (t *timeServers) included(file string, read func(file string, words []string, depth int) error, depth int) error {
	text, _, err := t.root.optional(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if i := strings.IndexAny(line, "#"); i >= 0 {
			line = line[:i]
		}
		words := strings.Fields(line)
		if len(words) < 2 || strings.ContainsAny(words[0][:1], "!;%") {
			continue
		}
		words[0] = strings.ToLower(words[0])
		if err := read(file, words, depth); err != nil {
			return err
		}
	}
	return nil
}

// all reads the files of a list.
func (t *timeServers) all(files []string, read func(string, []string, int) error, depth int) error {
	if depth > maxIncludes {
		return nil
	}
	for _, file := range files {
		if err := t.included(file, read, depth); err != nil {
			return err
		}
	}
	return nil
}

// chrony reads a line of chrony.conf(5), or of a .sources file, which has the same words.
func (t *timeServers) chrony(file string, words []string, depth int) error {
	switch words[0] {
	case "server", "pool", "peer":
		port, exchange, nts := ntpPort, ntsPort, false
		for i, w := range words[2:] {
			value := ""
			if i+3 < len(words) {
				value = words[i+3]
			}
			n, err := strconv.ParseUint(value, 10, 16)
			switch w = strings.ToLower(w); {
			case w == "nts":
				nts = true
			case w == "port" && err == nil:
				port = uint16(n)
			case w == "ntsport" && err == nil:
				exchange = uint16(n)
			}
		}
		t.add(words[1], policy.UDP, port, file)
		if nts {
			t.add(words[1], policy.TCP, exchange, file)
		}
	case "include":
		files, err := t.root.list(path.Dir(words[1]), path.Base(words[1]))
		if err != nil {
			return err
		}
		return t.all(files, t.chrony, depth+1)
	case "confdir", "sourcedir":
		pattern := map[string]string{"confdir": "*.conf", "sourcedir": "*.sources"}[words[0]]
		files, err := t.root.layered(pattern, words[1:]...)
		if err != nil {
			return err
		}
		return t.all(files, t.chrony, depth+1)
	}
	return nil
}

// ntpd reads a line of ntp.conf(5) of ntpd or NTPsec.
func (t *timeServers) ntpd(file string, words []string, depth int) error {
	options := slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return w == "-4" || w == "-6" })
	if len(options) == 0 {
		return nil
	}
	switch words[0] {
	case "server", "pool", "peer":
		t.add(options[0], policy.UDP, ntpPort, file)
		if slices.Contains(options[1:], "nts") {
			t.add(options[0], policy.TCP, ntsPort, file)
		}
	case "includefile":
		name := strings.Trim(options[0], `"`)
		if !path.IsAbs(name) {
			name = path.Join(path.Dir(file), name)
		}
		return t.all([]string{name}, t.ntpd, depth+1)
	}
	return nil
}

// openntpd reads a line of ntpd.conf(5) of openntpd.
func (t *timeServers) openntpd(file string, words []string, _ int) error {
	switch words[0] {
	case "server", "servers":
		t.add(words[1], policy.UDP, ntpPort, file)
	case "constraint", "constraints":
		if words[1] == "from" && len(words) > 2 {
			host, port, err := endpoint(strings.Trim(words[2], `"`))
			if err != nil {
				return nil // openntpd itself refuses the file
			}
			t.add(host, policy.TCP, port, file)
		}
	}
	return nil
}

// timesyncd reads timesyncd.conf(5), and the servers that systemd-networkd gives it.
func (t *timeServers) timesyncd() error {
	settings, err := t.root.systemd("timesyncd.conf")
	if err != nil {
		return err
	}
	const source = "timesyncd.conf"
	servers := listOf(settings, "Time", "NTP")
	links, there, err := t.root.optional("/run/systemd/netif/state")
	if err != nil {
		return err
	}
	if there {
		servers = append(servers, listOf(parseSettings("", links), "", "NTP")...)
	}
	fallback := listOf(settings, "Time", "FallbackNTP")
	if len(servers) == 0 && len(fallback) == 0 && t.root.there("/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service") {
		if fallback, err = t.compiled(); err != nil {
			return err
		}
	}
	for _, host := range append(servers, fallback...) {
		t.add(host, policy.UDP, ntpPort, source)
	}
	return nil
}

// compiled returns the servers that systemd-timesyncd was built with: the comments of
// timesyncd.conf show the defaults.
func (t *timeServers) compiled() ([]string, error) {
	_, text, err := t.root.first("/etc/systemd/timesyncd.conf", "/usr/lib/systemd/timesyncd.conf", "/lib/systemd/timesyncd.conf")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if servers, ok := strings.CutPrefix(strings.TrimSpace(line), "#FallbackNTP="); ok {
			return strings.Fields(servers), nil
		}
	}
	return nil, nil
}
