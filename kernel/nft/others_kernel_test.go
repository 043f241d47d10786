package nft

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/netns"
)

// TestRemoveChains: chains with the prefix and the jumps to them go, from tables that
// iptables wrote, without its programs. All else stays.
func TestRemoveChains(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	run := func(command string) string {
		t.Helper()
		words := strings.Fields(command)
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return string(out)
	}
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		for _, command := range []string{
			"-t mangle -N NAMEGATE-NAMES", "-t mangle -N NAMEGATE-P-1", "-t mangle -N OTHER", "-t mangle -A PREROUTING -j NAMEGATE-NAMES",
			"-t mangle -A NAMEGATE-NAMES -p tcp -m mark --mark 0x1 -g NAMEGATE-P-1", "-t mangle -A OTHER -m comment --comment NAMEGATE-P-1 -j RETURN",
			"-t mangle -A PREROUTING -p udp -j OTHER", "-t mangle -A OTHER -p udp -g NAMEGATE-P-1",
			"-t security -N NAMEGATE-DROP", "-t security -A FORWARD -j NAMEGATE-DROP", "-A FORWARD -p icmp -j ACCEPT",
		} {
			run(program + " -w " + command)
		}
	}
	tables, err := Open(Bits{Admitted: 0x40, Candidate: 0x20})
	fatal.If(t, err)
	for range 2 { // once more with nothing to remove
		fatal.If(t, tables.RemoveChains(t.Context(), "NAMEGATE-"))
		for _, program := range []string{"iptables-nft-save", "ip6tables-nft-save"} {
			var left []string
			for line := range strings.Lines(run(program)) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "-A ") {
					left = append(left, line)
				}
			}
			slices.Sort(left)
			want := []string{"-A FORWARD -p icmp -j ACCEPT", "-A OTHER -m comment --comment NAMEGATE-P-1 -j RETURN", "-A PREROUTING -p udp -j OTHER"}
			if !slices.Equal(left, want) {
				t.Errorf("%s: %q, want %q", program, left, want)
			}
			if out := run(program); strings.Contains(out, ":NAMEGATE-") || !strings.Contains(out, ":OTHER") {
				t.Errorf("%s:\n%s", program, out)
			}
		}
	}
}
