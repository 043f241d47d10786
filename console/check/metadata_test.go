package check

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestMetadataIsGuarded: the guard closes the address of each name, until the line that the
// finding says is written.
func TestMetadataIsGuarded(t *testing.T) {
	for _, name := range metadataNames {
		n, err := fqdn.ParseName(name)
		fatal.If(t, err)
		for line, want := range map[string]string{"": "metadata", "rebind allow " + name + " " + metadataAddress: ""} {
			c, err := corefile.Parse("Corefile", ". {\n    forward . 192.0.2.53\n    "+line+"\n}\n")
			fatal.If(t, err)
			diff.Equal(t, want, rebind.New(c, rebind.Addresses{}).Blocked(n, netip.MustParseAddr(metadataAddress), nil), name, "with", line)
		}
	}
}
