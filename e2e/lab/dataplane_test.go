package lab

import (
	"testing"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestDataplaneOfAgents: the lab, or else the environment, names the dataplane of a Corefile
// that names none, and another may follow.
func TestDataplaneOfAgents(t *testing.T) {
	const text = "corp.test {\n    forward . 192.0.2.54\n}\n. {\n    forward . 192.0.2.53\n    audit AUDIT\n}\n"
	for _, c := range []struct{ env, lab, text, first, next, then string }{
		{"", "", text, "auto", "nftables", "nftables"},
		{"nftables", "", text, "nftables", "iptables", "iptables"},
		{"nftables", "", text, "nftables", "", "auto"},
		{"nftables", "iptables", text, "iptables", "nftables", "nftables"},
		{"nftables", "", withDataplane(text, "iptables"), "iptables", "nftables", "nftables"},
		{"iptables", "", ".:53 {\n    forward . 192.0.2.53\n}\n", "iptables", "iptables", "iptables"},
	} {
		t.Setenv("DATAPLANE", c.env)
		a, err := (&Lab{Dataplane: c.lab}).NewAgent("", t.TempDir(), c.text)
		fatal.If(t, err)
		is := func(want string) {
			t.Helper()
			config, err := corefile.Load(a.path("Corefile"))
			fatal.If(t, err)
			if string(config.Dataplane) != want {
				t.Errorf("DATAPLANE=%s, %q: %s, want %s", c.env, c.text, config.Dataplane, want)
			}
		}
		is(c.first)
		fatal.If(t, a.SetDataplane(c.next))
		is(c.then)
	}
}
