package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// program is something that asks for the addresses of a name as real workloads do.
type program struct {
	name  string
	needs []string // programs and files that have to be there
	build func(dir string) *exec.Cmd
	// argv is the command; DIR is build's output folder, and the name to look up is
	// appended.
	argv    string
	missing string // its output for a missing name
	search  bool   // it completes names by the search path
	noTCP   bool   // it uses a truncated answer
	one     bool   // it tells one family of addresses, IPv6 if there are any
}

// source is a file of the clients.
func source(name string) string { return filepath.Join("testdata", "clients", name) }

// resolvedRoot and nscdRoot are where e2e/prepare unpacks systemd-resolved and nscd.
const (
	resolvedRoot = "../../bin/systemd-resolved"
	nscdRoot     = "../../bin/nscd"
)

var programs = []program{
	{name: "glibc", needs: []string{"getent"}, argv: "getent ahosts", search: true},
	{name: "glibc-hosts", needs: []string{"getent"}, argv: "getent hosts", search: true, one: true},
	{name: "musl", needs: []string{"musl-gcc"}, argv: "DIR/lookup", missing: "Name does not resolve", search: true, noTCP: true,
		build: func(dir string) *exec.Cmd { return exec.Command("musl-gcc", "-o", dir+"/lookup", source("lookup.c")) }},
	{name: "busybox", needs: []string{"busybox"}, argv: "busybox nslookup", missing: "NXDOMAIN", noTCP: true},
	{name: "nslookup", needs: []string{"nslookup"}, argv: "nslookup", missing: "NXDOMAIN", search: true},
	{name: "go", needs: []string{"go"}, argv: "DIR/lookup", missing: "no such host", search: true,
		build: func(dir string) *exec.Cmd {
			cmd := exec.Command("go", "build", "-tags", "netgo", "-o", dir+"/lookup", "./"+source("golang"))
			cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
			return cmd
		}},
	{name: "node-c-ares", needs: []string{"node"}, argv: "node " + source("lookup.js") + " cares", missing: "ENOTFOUND"},
	{name: "node-getaddrinfo", needs: []string{"node"}, argv: "node " + source("lookup.js") + " lookup", missing: "ENOTFOUND", search: true},
	{name: "python", needs: []string{"python3"}, argv: "python3 " + source("lookup.py"), missing: "Name or service not known", search: true},
	{name: "c-ares", needs: []string{"gcc", "/usr/include/ares.h"}, argv: "DIR/lookup", missing: "Domain name not found", search: true,
		build: func(dir string) *exec.Cmd {
			return exec.Command("gcc", "-o", dir+"/lookup", source("lookup_ares.c"), "-lcares")
		}},
	{name: "systemd-resolved", needs: []string{resolvedRoot}, argv: "sh " + source("resolved.sh") + " " + resolvedRoot + " getent ahosts", missing: "getent ended with 2", search: true},
	{name: "java", needs: []string{"java", "javac"}, argv: "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp DIR Lookup",
		missing: "unknown host", search: true,
		build: func(dir string) *exec.Cmd { return exec.Command("javac", "-d", dir, source("Lookup.java")) }},
}

// clientRow is one name that every program asks for; NAME is the program's name.
type clientRow struct {
	name string
	ask  string // its argument
	// host is the row's number in the addresses, many how many of them there are.
	host, many int
	cname      bool
	search     bool // only for programs that complete names
	unmatched  bool // no policy matches it: told, and not open
	over6      bool // the pod's resolver has an IPv6 address
}

var clientRows = []clientRow{
	{name: "plain", ask: "plain.NAME.test", host: 1, many: 1},
	{name: "mixed case", ask: "MiXeD.NAME.TEST", host: 2, many: 1},
	{name: "two aliases", ask: "alias.NAME.test", host: 3, many: 1, cname: true},
	{name: "a resolver with an IPv6 address", ask: "six.NAME.test", host: 4, many: 1, over6: true},
	{name: "search path", ask: "web-NAME", host: 5, many: 1, search: true},
	{name: "a trailing dot", ask: "dot.NAME.test.", host: 6, many: 1},
	{name: "no policy matches", ask: "other.NAME.example", host: 7, many: 1, unmatched: true},
	{name: "an answer that needs TCP", ask: "large.NAME.test", host: 100, many: 60},
}

// addr4 and addr6 are the addresses of a row for the program with a number.
func (r clientRow) addr4(program, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(program + 1), byte(r.host + i)})
}

func (r clientRow) addr6(program, i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:c::%x:%x", program+1, r.host+i))
}

// records are the world's records for the row.
func (r clientRow) records(program int, name string) string {
	owner := strings.TrimSuffix(strings.ReplaceAll(r.ask, "NAME", name), ".") + "."
	if r.search {
		owner += "shop.svc.cluster.local."
	}
	text := ""
	if r.cname {
		text += owner + " 60 IN CNAME one." + name + ".cdn.example.\none." + name + ".cdn.example. 60 IN CNAME two." + name + ".cdn.example.\n"
		owner = "two." + name + ".cdn.example."
	}
	for i := range r.many {
		text += fmt.Sprintf("%s 60 IN A %s\n%s 60 IN AAAA %s\n", owner, r.addr4(program, i), owner, r.addr6(program, i))
	}
	return text
}

// clientsPolicy allows the rows' names, and dig's.
const clientsPolicy = `
podSelector: {}
egress:
- matches:
  - pattern: "**.test"
  - pattern: "web-*.shop.svc.cluster.local"
  ports: [{protocol: TCP, port: 80}]`

// clientsStage is a stage for programs in pod a, with two kinds of /etc: the
// resolver by its IPv4 and by its IPv6 address.
func clientsStage(t *testing.T) (s *stage, etc4, etc6 lab.Etc) {
	s = newStage(t, lab.Routed)
	// A name of the cluster opens the world's addresses by an exception alone.
	s.agentWith(strings.Replace(corefile, "audit AUDIT", "audit AUDIT\n    rebind allow shop.svc.cluster.local 198.18.0.0/15 2001:db8:c::/48", 1))
	etc4, err := lab.WriteEtc(t.TempDir(), lab.Resolver4.String())
	fatal.If(t, err)
	etc6, err = lab.WriteEtc(t.TempDir(), lab.Resolver6.String())
	fatal.If(t, err)
	for i, p := range programs {
		for _, r := range clientRows {
			s.zone.add(r.records(i, p.name))
		}
	}
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", nil),
		"policy.yaml": policy("clients", clientsPolicy),
	})
	return s, etc4, etc6
}

// TestClients lets programs that know nothing of the agent look names up in a pod, and
// connects to their results.
func TestClients(t *testing.T) {
	t.Parallel()
	s, etc4, etc6 := clientsStage(t)
	for i, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			argv := p.ready(t)
			for _, r := range clientRows {
				if r.search && !p.search {
					continue
				}
				t.Run(r.name, func(t *testing.T) {
					etc := etc4
					if r.over6 {
						etc = etc6
					}
					s.clientAsks(t, etc, argv, i, r)
				})
			}
			t.Run("a name that is not there", func(t *testing.T) {
				out, err := s.Pod("a").RunIn(etc4, append(slices.Clone(argv), "absent."+p.name+".test")...)
				if told := told(out); len(told) != 0 || !strings.Contains(out, p.missing) || err == nil && p.missing == "" {
					t.Errorf("told %v, said %q, error %v; want no address, an error or the words %q", told, out, err, p.missing)
				}
			})
		})
	}
}

// ready returns the program's command once everything that it needs is there.
func (p program) ready(t *testing.T) []string {
	t.Helper()
	needed(t, p.needs...)
	dir := t.TempDir()
	if p.build != nil {
		if out, err := p.build(dir).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", p.name, err, out)
		}
	}
	return strings.Fields(strings.ReplaceAll(p.argv, "DIR", dir))
}

// needed ends the test if a program or a file is missing.
func needed(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		_, err := exec.LookPath(word)
		if strings.Contains(word, "/") {
			_, err = os.Stat(word)
		}
		fatal.If(t, err, word, "not installed: run `make test`, or as root e2e/prepare", word)
	}
}

// clientAsks runs the program for a row, and asserts its output and the open addresses
// before and after.
func (s *stage) clientAsks(t *testing.T, etc lab.Etc, argv []string, number int, r clientRow) {
	p, pod := programs[number], s.Pod("a")
	first := []netip.Addr{r.addr4(number, 0), r.addr6(number, 0)}
	for _, addr := range first {
		diff.Equal(t, lab.Refused, pod.ProbeFor("tcp", netip.AddrPortFrom(addr, 80), lab.PatienceFor(lab.Refused)), addr, "before the question")
	}
	out, err := pod.RunIn(etc, append(slices.Clone(argv), strings.ReplaceAll(r.ask, "NAME", p.name))...)
	fatal.If(t, err)
	told, want := told(out), r.wanted(number)
	if p.one {
		want = slices.DeleteFunc(want, netip.Addr.Is4)
	}
	slices.SortFunc(want, netip.Addr.Compare)
	switch {
	case !slices.Equal(told, want) && (r.many == 1 || !p.noTCP):
		t.Errorf("told %v, want %v; it said:\n%s", told, want, out)
	case len(told) == 0 || slices.ContainsFunc(told, func(a netip.Addr) bool { return !slices.Contains(want, a) }):
		t.Errorf("told %v, want some of %v", told, want)
	}
	for _, addr := range told {
		open := lab.Answered
		if r.unmatched || r.cname && s.byTarget(addr) {
			open = lab.Refused
		}
		diff.Equal(t, open, pod.ProbeFor("tcp", netip.AddrPortFrom(addr, 80), lab.PatienceFor(open)), addr, "which the client was told")
	}
}

// byTarget tells whether the pod got an address only by queries for the target of an alias,
// which is another name: nslookup queries the second family so, and systemd-resolved at times.
// A name without a match is answered, and not open.
func (s *stage) byTarget(addr netip.Addr) (targetOnly bool) {
	s.t.Helper()
	s.until("the log of the answer "+addr.String(), func(int) bool {
		lines, err := s.agent.AuditLines()
		if err != nil {
			return false // a line is being written
		}
		logged := false
		for _, l := range lines {
			if text := fmt.Sprint(l["answers"]); strings.Contains(text, "address:"+addr.String()+" ") {
				target := strings.Contains(fmt.Sprint(l["question"]), ".cdn.example ")
				targetOnly, logged = target && (targetOnly || !logged), true
			}
		}
		return logged
	})
	return targetOnly
}

// wanted are all addresses of the row.
func (r clientRow) wanted(program int) (all []netip.Addr) {
	for i := range r.many {
		all = append(all, r.addr4(program, i), r.addr6(program, i))
	}
	return all
}

// answerRanges are where the addresses of answers are; a resolver's is in none.
var answerRanges = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("2001:db8:c::/48")}

// told returns the addresses of answers in a program's output, in order and each once.
func told(out string) (all []netip.Addr) {
	for _, word := range strings.Fields(out) {
		a, err := netip.ParseAddr(strings.Trim(word, `,"[]`))
		if err == nil && slices.ContainsFunc(answerRanges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
