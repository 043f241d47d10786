package iptables

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/netns"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name        string
		legacy, nft traces
		want        Variant
	}{
		{"nothing", traces{}, traces{}, "fallback"},
		{"kubelet in legacy", traces{Hint: true}, traces{Rules: 100, Own: 3}, Legacy},
		{"kubelet in nft", traces{Rules: 100, Own: 3}, traces{Hint: true}, NFT},
		{"kubelet in both, more in legacy", traces{Hint: true, Rules: 9}, traces{Hint: true, Rules: 2}, Legacy},
		{"more in nft", traces{Rules: 1}, traces{Rules: 2}, NFT},
		{"our own do not outvote others", traces{Own: 9}, traces{Rules: 1}, NFT},
		{"only our own", traces{Own: 1}, traces{}, Legacy},
		{"only our own, in nft", traces{}, traces{Own: 1}, NFT},
		{"as many", traces{Rules: 4}, traces{Rules: 4}, "fallback"},
	} {
		got, why := choose(c.legacy, c.nft, "fallback")
		if got != c.want || why == "" {
			t.Errorf("%s: %q because %q, want %q", c.name, got, why, c.want)
		}
	}
}

// TestDetect looks at the kernel of a namespace in which another program, or an
// agent, has written by one of the variants.
func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  Variant
	}{
		{"legacy rule", []string{"iptables-legacy -A INPUT -j ACCEPT"}, Legacy},
		{"legacy rule of IPv6", []string{"ip6tables-legacy -t nat -A POSTROUTING -j ACCEPT"}, Legacy},
		{"nft rule", []string{"iptables-nft -A INPUT -j ACCEPT"}, NFT},
		{"kubelet in legacy, others in nft", []string{"iptables-legacy -t mangle -N KUBE-IPTABLES-HINT", "iptables-nft -A INPUT -j ACCEPT"}, Legacy},
		{"our own", []string{"iptables-legacy -t raw -N NAMEGATE-HOME", "iptables-legacy -t raw -A PREROUTING -j NAMEGATE-HOME"}, Legacy},
		{"our own, and a CNI in nft", []string{"iptables-legacy -t raw -N NAMEGATE-HOME", "iptables-nft -t nat -A POSTROUTING -j MASQUERADE"}, NFT},
	} {
		t.Run(c.name, func(t *testing.T) {
			netns.Own(t)
			for _, line := range c.lines {
				words := strings.Fields(line)
				if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", line, err, out)
				}
			}
			got, why, err := Detect(context.Background(), "NAMEGATE-")
			if err != nil || got != c.want {
				t.Errorf("%q because %q (%v), want %q", got, why, err, c.want)
			}
		})
	}
}

// TestDetectTouchesNothing: to look makes no legacy table.
func TestDetectTouchesNothing(t *testing.T) {
	netns.Own(t)
	if _, _, err := Detect(context.Background(), "NAMEGATE-"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("cat", "/proc/self/net/ip_tables_names", "/proc/self/net/ip6_tables_names").CombinedOutput()
	if err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("tables that were not there before: %s (%v)", out, err)
	}
}
