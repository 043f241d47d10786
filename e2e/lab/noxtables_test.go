package lab

import (
	"os"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestWithoutXtables: the programs of ipset and iptables fail as on a kernel without their
// modules, and nftables works.
func TestWithoutXtables(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the lab makes network namespaces: run it as root")
	}
	l, err := New(Routed)
	fatal.If(t, err)
	t.Cleanup(func() { fatal.If(t, l.Remove()) })
	a, err := l.NewAgent("", t.TempDir(), "")
	fatal.If(t, err)
	a.NoXtables = true
	for _, c := range []struct {
		command []string
		works   bool
	}{
		{[]string{"ipset", "list"}, false},
		{[]string{"ipset", "create", "set", "hash:ip"}, false},
		{[]string{"iptables-legacy", "-S"}, false},
		{[]string{"ip6tables-legacy", "-S"}, false},
		{[]string{"iptables-nft", "-A", "OUTPUT", "-m", "set", "--match-set", "set", "dst"}, false},
		{[]string{"nft", "add", "table", "inet", "test"}, true},
		{[]string{"nft", "list", "table", "inet", "test"}, true},
		{[]string{"ip", "addr"}, true},
	} {
		out, err := a.Run(c.command[0], c.command[1:]...)
		if (err == nil) != c.works {
			t.Errorf("%q: %v, %s", c.command, err, out)
		}
		if c.works {
			continue
		}
		// The machine's kernel has them.
		if out, err := l.Node.Run(c.command[0], c.command[1:]...); err != nil {
			t.Errorf("%q: %v, %s", c.command, err, out)
		}
	}
}
