package agent

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestDecisionsGoTwoWays: into the log, if there is one, and into what denials remember.
func TestDecisionsGoTwoWays(t *testing.T) {
	pod, addr := policy.PodRef{Namespace: "shop", Name: "a", UID: "1"}, netip.MustParseAddr("192.0.2.1")
	name, err := fqdn.ParseName("www.example.org")
	fatal.If(t, err)
	r := audit.Record{Time: time.Unix(1_700_000_000, 0), Pod: pod, Address: netip.MustParseAddr("10.1.0.5"), Name: name, Type: 1, Class: 1, Verdict: audit.Unmatched, Answers: []audit.Answer{{Addr: addr}}}
	var b bytes.Buffer
	log := audit.To(&b, audit.Options{Node: "n"})
	for _, d := range []decisions{{nil, recent.NewMemory()}, {log, recent.NewMemory()}} {
		d.Write(r)
		if seen := d.memory.Seen(pod, addr); len(seen) != 1 || seen[0].Name != name {
			t.Errorf("remembered: %+v", seen)
		}
	}
	fatal.If(t, log.Close(context.Background()))
	if n := strings.Count(b.String(), "www.example.org"); n != 1 {
		t.Errorf("the log is %q", b.String())
	}
}
