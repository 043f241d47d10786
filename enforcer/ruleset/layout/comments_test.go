package layout_test

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestObjectsHaveComments: each set, map and chain of the tables in the kernel says what it is, also those that
// states add.
func TestObjectsHaveComments(t *testing.T) {
	t.Parallel()
	ctx, tables := context.Background(), inKernel(t)
	tables.admitCandidates()
	state := withNode(subjects())
	names := checkedNames()
	state.Tiers, state.Entries, state.Relays, state.NodeDNS = names.Tiers, append(state.Entries, names.Entries...), names.Relays, &layout.NodeDNS{Mark: 0x60}
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, state)))
	verified(t, tables, state)
	fatal.If(t, tables.AddSets(ctx, []string{"e05"}, []layout.GrantSet{{Name: "cafecafecafe", Ported: true}}))
	objects := 0
	for _, table := range [][]string{{"inet", layout.TableName}, {"bridge", layout.TableName}, {"inet", layout.NetTableName}} {
		out, err := exec.Command("nft", append([]string{"list", "table"}, table...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, object := range regexp.MustCompile(`(?ms)^\t(?:set|map|chain) \S+ {.*?^\t}`).FindAllString(string(out), -1) {
			if objects++; !regexp.MustCompile(`(?m)^\t\tcomment "`).MatchString(object) {
				t.Errorf("no comment:\n%.200s", object)
			}
		}
	}
	if objects < 120 {
		t.Errorf("%d objects", objects)
	}
}
