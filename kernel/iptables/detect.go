package iptables

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// OpenOther returns the chains of the variant beside v, nil where the node has no
// programs for it or v is Default.
func OpenOther(v Variant) *Exec {
	other, ok := map[Variant]Variant{Legacy: NFT, NFT: Legacy}[v]
	if !ok {
		return nil
	}
	e, err := NewExec(other)
	if err != nil {
		return nil
	}
	return e
}

// kubeletChains are made by kubelet in the variant that the host uses, for others
// to find (KEP-3178).
var kubeletChains = []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}

// traces are what one variant's tables hold in a network namespace.
type traces struct {
	// Hint: kubelet left its sign there.
	Hint bool
	// Rules counts the rules of other programs, Own the chains of an agent.
	Rules, Own int
}

// choose returns the variant that the host uses, and the reason: the one with kubelet's
// chain; else the one with more rules of other programs; else the one that an earlier
// agent wrote to; else the fallback.
func choose(legacy, nft traces, fallback Variant) (v Variant, why string) {
	switch {
	case legacy.Hint != nft.Hint:
		return pick(legacy.Hint), "kubelet uses it"
	case legacy.Rules != nft.Rules:
		return pick(legacy.Rules > nft.Rules), fmt.Sprintf("other programs have %d rules in legacy and %d in nft", legacy.Rules, nft.Rules)
	case legacy.Own != nft.Own:
		return pick(legacy.Own > nft.Own), "an earlier agent used it"
	}
	return fallback, "the program iptables is of that variant, and no rule says otherwise"
}

func pick(legacy bool) Variant {
	if legacy {
		return Legacy
	}
	return NFT
}

// Detect returns the variant that the host of this network namespace uses. The programs'
// own default is no evidence in a container's image. If only one variant's programs are
// installed, it is that one; own is the prefix of the agent's chains.
func Detect(ctx context.Context, own string) (v Variant, why string, err error) {
	_, noLegacy := NewExec(Legacy)
	_, noNFT := NewExec(NFT)
	switch {
	case noLegacy != nil && noNFT != nil:
		return Default, "the variants have no programs of their own", nil
	case noLegacy != nil:
		return NFT, "there is no program of the other", nil
	case noNFT != nil:
		return Legacy, "there is no program of the other", nil
	}
	program := programVariant(ctx)
	if program == NFT && !legacyTables(IPv4) && !legacyTables(IPv6) {
		return NFT, "no program uses legacy tables, and the program iptables is of that variant", nil
	}
	var found [2]traces
	for i, variant := range []Variant{Legacy, NFT} {
		all, err := (&Exec{variant: variant}).SaveAll(ctx)
		if err != nil {
			return Default, "", fmt.Errorf("look for the host's variant of iptables: %w", err)
		}
		for _, tables := range all {
			found[i].add(tables, own)
		}
	}
	v, why = choose(found[0], found[1], program)
	return v, why, nil
}

// LegacyInUse tells whether any table of the legacy variant is in use in the calling thread's
// network namespace.
func LegacyInUse() bool { return legacyTables(IPv4) || legacyTables(IPv6) }

// legacyTables tells whether the namespace has legacy tables at all.
func legacyTables(f Family) bool {
	path := "/proc/thread-self/net/ip_tables_names"
	if f == IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	text, err := os.ReadFile(path)
	return err == nil && len(bytes.TrimSpace(text)) > 0
}

// programVariant is that of the program iptables, as it says in its version.
func programVariant(ctx context.Context) Variant {
	out, err := exec.CommandContext(ctx, "iptables", "--version").Output()
	if err == nil && strings.Contains(string(out), "(legacy)") {
		return Legacy
	}
	return NFT
}

// add counts what tables hold.
func (t *traces) add(tables map[string]Chains, own string) {
	for _, chains := range tables {
		for name, rules := range chains {
			if strings.HasPrefix(name, own) {
				t.Own++
				continue
			}
			for _, k := range kubeletChains {
				t.Hint = t.Hint || name == k
			}
			for _, r := range rules {
				if !strings.Contains(r, "-j "+own) {
					t.Rules++
				}
			}
		}
	}
}
