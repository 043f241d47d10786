package scenarios

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestRivalRules(t *testing.T) {
	t.Parallel()
	accepts := func(s *stage) {
		for table, chains := range map[string]string{"raw": "PREROUTING", "mangle": "PREROUTING INPUT FORWARD POSTROUTING", "filter": "INPUT FORWARD"} {
			for c := range strings.FieldsSeq(chains) {
				s.xtables("-t " + table + " -I " + c + " -j ACCEPT")
			}
		}
	}
	// marks are rules that write all packets' marks, the last of which says how; ours are 0x40
	// and 0x20.
	marks := func(flag, last string) func(s *stage) {
		return func(s *stage) {
			targets := []string{"MARK --set-mark 0xffffffff", last}
			if flag == "-I" {
				slices.Reverse(targets)
			}
			for _, c := range []string{"PREROUTING", "INPUT", "FORWARD"} {
				for _, target := range targets {
					s.xtables("-t mangle " + flag + " " + c + " -j " + target)
				}
			}
		}
	}
	tests := []struct {
		name  string
		rival func(s *stage)
		opens bool // what is allowed is allowed all the same
	}{
		{"accept on top of every chain", accepts, false},
		{"every bit set above ours", marks("-I", "MARK --set-mark 0xffffffff"), true},
		{"every bit set below ours", marks("-A", "MARK --set-mark 0xffffffff"), true},
		{"the admission's bit set below ours", marks("-A", "MARK --set-mark 0x40"), true},
		{"the candidate's bit set below ours", marks("-A", "MARK --set-mark 0x20"), true},
		{"marks overwritten below ours", marks("-A", "MARK --set-mark 0x1"), true},
		{"marks restored below ours", marks("-A", "CONNMARK --restore-mark"), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
				s := guardedStage(t, kind)
				no := 0
				test.rival(s)
				s.holds("with the rival's rules")
				if test.opens {
					s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
					s.expect("a", "tcp", "[2001:db8:1::1]:80", lab.Answered)
				}
				s.forges("with the rival's rules", &no)
			})
		})
	}
}

func TestEachNetEnforcesAlone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		dataplanes []string // that have the objects; nil for both
		lose       [][]string
	}{
		{"our nft tables deleted", nil, [][]string{
			{"nft", "delete", "table", "inet", "namegate"}, {"nft", "delete", "table", "bridge", "namegate"},
		}},
		{"second table deleted", []string{nftables}, [][]string{{"nft", "delete", "table", "inet", "namegate-net"}}},
		{"iptables chains flushed", []string{iptables}, [][]string{
			{"iptables", "-t", "raw", "-F"}, {"iptables", "-t", "mangle", "-F"}, {"iptables", "-t", "security", "-F"},
			{"ip6tables", "-t", "raw", "-F"}, {"ip6tables", "-t", "mangle", "-F"}, {"ip6tables", "-t", "security", "-F"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, kind nodeKind) {
				s := guardedStage(t, kind)
				no := 0
				before, err := s.agent.Status()
				fatal.If(t, err)
				for _, l := range test.lose {
					run(t, s.Node, l[0], l[1:]...)
				}
				if test.name == "our nft tables deleted" && kind.dataplane == nftables && kind.network == lab.Bridged {
					s.forgesPod("with one net", &no) // others' sources pass the second net there until the repair
				} else {
					s.forges("with one net", &no)
				}
				s.holds("with one net")
				fatal.If(t, s.agent.WaitFor("the repair", func(st lab.Status) bool { return st.Enforcer.Repairs > before.Enforcer.Repairs }))
				s.eventually("a", "198.51.100.1:80", lab.Answered)
				s.eventually("a", "198.51.100.2:80", lab.Refused)
				s.forges("after the repair", &no)
			}, test.dataplanes...)
		})
	}
}

// eventually waits for an outcome of TCP probes. A probe that begins too early is
// not waited for long; a slow machine gets ever more time.
func (s *stage) eventually(pod, to string, want lab.Outcome) {
	s.t.Helper()
	var got lab.Outcome
	patience := lab.Patience
	for until := time.Now().Add(eventLimit); time.Now().Before(until); patience = min(2*patience, lab.Limit) {
		if got = s.Pod(pod).ProbeFor("tcp", netip.MustParseAddrPort(to), patience); got == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Errorf("pod %s to %s: %s, want %s in the end", pod, to, got, want)
}

// TestEverythingFlushed takes both nets away at once, as `nft flush ruleset` does
// where iptables keeps its tables in nftables: the kernel tells of it, and they
// are back before the agent would look by itself.
func TestEverythingFlushed(t *testing.T) {
	staged(t, onRouted, guardedStage, func(t *testing.T, s *stage) {
		var took []time.Duration
		for range 3 {
			run(t, s.Node, "nft", "flush", "ruleset")
			flushed := time.Now()
			for s.Pod("a").Probe("tcp", addrPort("198.51.100.2:80")) == lab.Answered {
				if time.Since(flushed) > comeback {
					t.Fatalf("denied traffic passes %v after the ruleset was flushed", comeback)
				}
			}
			took = append(took, time.Since(flushed))
			s.eventually("a", "198.51.100.1:80", lab.Answered)
			s.holds("after the repair")
		}
		s.soonBack(took)
	})
}
