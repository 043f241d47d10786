package scenarios

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// replayed is how many names of each kind the capture has.
const replayed = 20

// replayTypes are queried for each name.
var replayTypes = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeMX, dns.TypeSRV, dns.TypeHTTPS, dns.TypeCNAME, 65280}

// replayZone fills the world's resolver, and returns the names of the capture.
func replayZone(z *zone) (names []string) {
	for i := range replayed {
		n := strconv.Itoa(i)
		address, alias, other := "host"+n+".replay.test.", "alias"+n+".replay.test.", "other"+n+".example."
		for j := range i%5 + 1 {
			z.add(fmt.Sprintf("%s 300 IN A 198.18.%d.%d\n%[1]s 300 IN AAAA 2001:db8:c::%[2]x:%[3]x", address, 100+i, j+1))
		}
		z.add(address + " 300 IN TXT \"v=spf1 -all\" \"number " + n + "\"\n" + address + " 300 IN MX 10 mail" + n + ".replay.test.\n" +
			address + " 300 IN SRV 1 2 443 srv" + n + ".replay.test.\n" + address + " 300 IN TYPE65280 \\# 2 00" + fmt.Sprintf("%02x", i) + "\n" +
			address + " 300 IN HTTPS 1 . alpn=h2 ipv4hint=198.18.99." + n)
		z.add(alias + " 300 IN CNAME two" + alias + "\ntwo" + alias + " 300 IN CNAME " + address)
		z.add(other + " 300 IN A 198.18.98." + n)
		names = append(names, address, alias, other, "absent"+n+".replay.test.")
	}
	return names
}

// capture is a file of packets as libpcap writes it, of queries and responses over UDP.
type capture struct {
	bytes []byte
	at    time.Time
}

func newCapture() *capture {
	c := &capture{at: time.Now()}
	for _, word := range []uint32{0xa1b2c3d4, 2 | 4<<16, 0, 0, 65535, 1} { // magic, version 2.4, Ethernet
		c.bytes = binary.LittleEndian.AppendUint32(c.bytes, word)
	}
	return c
}

// add appends a packet, a millisecond after the last.
func (c *capture) add(from, to netip.AddrPort, payload []byte) {
	c.at = c.at.Add(time.Millisecond)
	frame := append(make([]byte, 12), 0x08, 0x00) // Ethernet, IPv4
	frame = append(frame, 0x45, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(20+8+len(payload)))
	frame = append(frame, 0, 0, 0, 0, 64, 17, 0, 0) // UDP; no checksums
	frame = append(frame, from.Addr().AsSlice()...)
	frame = append(frame, to.Addr().AsSlice()...)
	for _, word := range []uint16{from.Port(), to.Port(), uint16(8 + len(payload)), 0} {
		frame = binary.BigEndian.AppendUint16(frame, word)
	}
	frame = append(frame, payload...)
	for _, word := range []uint32{uint32(c.at.Unix()), uint32(c.at.Nanosecond() / 1000), uint32(len(frame)), uint32(len(frame))} {
		c.bytes = binary.LittleEndian.AppendUint32(c.bytes, word)
	}
	c.bytes = append(c.bytes, frame...)
}

// record asks the upstream itself from a pod, and captures the queries and responses. A response
// without records has no SOA, so no cache keeps it.
func (s *stage) record(names []string) (c *capture, queries, empty int) {
	s.t.Helper()
	server, pod := netip.AddrPortFrom(lab.Resolver4, 53), s.Pod("a")
	conn, err := pod.Dial("udp", server.String(), lab.Limit)
	fatal.If(s.t, err)
	defer conn.Close()
	fatal.If(s.t, conn.SetDeadline(time.Now().Add(eventLimit)))
	c = newCapture()
	buf := make([]byte, dns.MaxMsgSize)
	for i, name := range names {
		for _, qtype := range replayTypes {
			q := new(dns.Msg).SetQuestion(name, qtype)
			if queries%2 == 0 {
				q.SetEdns0(1232, false)
			}
			packet, err := q.Pack()
			fatal.If(s.t, err)
			_, err = conn.Write(packet)
			fatal.If(s.t, err)
			n, err := conn.Read(buf)
			fatal.If(s.t, err)
			from := netip.AddrPortFrom(pod.Addr4, uint16(20000+i))
			c.add(from, server, packet)
			c.add(server, from, buf[:n])
			queries++
			if buf[7] == 0 { // ANCOUNT
				empty++
			}
		}
	}
	return c, queries, empty
}

// compared is the line of dnsreplay with its judgement.
var compared = regexp.MustCompile(`(?m)(\d+) questions sent, \d+ original answers, (\d+) perfect, (\d+) mostly correct, (\d+) we better, (\d+) orig better.*\n`)

// TestReplay replays queries that the upstream answered, and dnsreplay compares the endpoint's
// responses with the upstream's: first those that are forwarded, then those from the cache.
// dnsreplay does not repeat what is lost on a busy machine, so runs repeat until one is complete.
func TestReplay(t *testing.T) {
	t.Parallel()
	needed(t, "dnsreplay")
	s := newStage(t, lab.Routed)
	names := replayZone(s.zone)
	fatal.If(t, s.Ready())
	c, queries, empty := s.record(names)
	file := filepath.Join(t.TempDir(), "capture.pcap")
	fatal.If(t, os.WriteFile(file, c.bytes, 0o644))
	var err error
	s.agent, err = s.NewAgent(agentBinary, t.TempDir(), strings.Replace(withLimits(fast+"\n        queries_per_pod 4096"), "audit AUDIT", "cache\n    audit AUDIT", 1))
	fatal.If(t, err)
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", nil),
		"policy.yaml": policy("clients", clientsPolicy),
	})
	for run, until := 1, time.Now().Add(2*eventLimit); ; run++ {
		before := len(s.outside.Asked())
		out, err := s.Pod("a").Run("dnsreplay", "--timeout-msec=5000", file, lab.Resolver4.String(), "53")
		fatal.If(t, err)
		asked := len(s.outside.Asked()) - before
		all := compared.FindAllStringSubmatch(out, -1)
		if len(all) == 0 {
			t.Fatalf("dnsreplay compared nothing:\n%s", out)
		}
		last := all[len(all)-1]
		if last[2] == "0" || last[3] != "0" || last[4] != "0" || last[5] != "0" {
			t.Fatalf("run %d: %s", run, s.differences(file))
		}
		if run > 1 && last[2] == strconv.Itoa(queries) && asked <= empty {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("run %d: %d queries to the upstream, want %d: %s", run, asked, empty, last[0])
		}
	}
}

// differences replays again, and returns what dnsreplay tells about each response.
func (s *stage) differences(file string) string {
	out, err := s.Pod("a").Run("dnsreplay", "--quiet=0", "--timeout-msec=5000", file, lab.Resolver4.String(), "53")
	fatal.If(s.t, err)
	lines, err := s.agent.AuditLines()
	fatal.If(s.t, err)
	for _, line := range lines {
		if line["verdict"] == "failed" {
			out += fmt.Sprintln(line)
		}
	}
	return out
}
