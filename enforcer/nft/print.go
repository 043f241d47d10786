package nft

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// printByRules prints one of our tables by asking the interface for its rules and
// elements.
func (t *Tables) printByRules(ctx context.Context, f knftables.Family) (string, error) {
	i := slices.Index(tableFamilies, f)
	table := t.both()[i]
	chains, err := table.List(ctx, "chains")
	if err != nil && !knftables.IsNotFound(err) {
		return "", fmt.Errorf("list nft chains: %w", err)
	}
	if len(chains) == 0 {
		return "", nil
	}
	slices.Sort(chains)
	var b strings.Builder
	for _, c := range chains {
		rules, err := table.ListRules(ctx, c)
		if err != nil {
			return "", fmt.Errorf("list nft chain %s: %w", c, err)
		}
		fmt.Fprintln(&b, c)
		for _, r := range rules {
			fmt.Fprintln(&b, " ", r.Rule)
		}
	}
	elements := map[string]*knftables.Element{}
	names, err := t.names(ctx, i)
	if err != nil {
		return "", err
	}
	if err := t.readTable(ctx, i, names, elements, func(string) bool { return true }); err != nil {
		return "", err
	}
	return b.String() + strings.Join(slices.Sorted(maps.Keys(elements)), "\n"), nil
}

// printTable prints one of our tables without counters and what passes by itself, in
// an order that does not depend on where the kernel keeps an element.
func printTable(ctx context.Context, f knftables.Family) (string, error) {
	out, err := exec.CommandContext(ctx, "nft", "-s", "list", "table", string(f), TableName).Output()
	if err == nil {
		return inOrder(string(out)), nil
	}
	tables, listErr := tableNames()
	if listErr != nil {
		return "", listErr
	}
	if slices.Contains(tables, Named{string(f), TableName}) {
		return "", fmt.Errorf("list nft table %s %s: %w", f, TableName, err)
	}
	return "", nil
}

// inOrder sorts the elements of each set and leaves out those that come and go.
func inOrder(printed string) string {
	var b strings.Builder
	var elements []string
	passing, listing := false, false
	for line := range strings.Lines(printed) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "set "); ok {
			word, _, _ := strings.Cut(name, " ")
			passing = volatile(word)
		}
		rest, begins := strings.CutPrefix(line, "elements = {")
		if listing = listing || begins; !listing {
			fmt.Fprintln(&b, line)
			continue
		}
		text, ends := strings.CutSuffix(rest, "}")
		for e := range strings.SplitSeq(text, ",") {
			if e = strings.TrimSpace(e); e != "" {
				elements = append(elements, e)
			}
		}
		if !ends {
			continue
		}
		if slices.Sort(elements); !passing {
			fmt.Fprintln(&b, strings.Join(elements, ", "))
		}
		elements, listing = nil, false
	}
	return b.String()
}
