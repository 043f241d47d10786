package conntrack

import (
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/namegate/namegate/kernel/nfattr"
)

// TestOffloadedIsRead: by the bit of the status, whatever the others are.
func TestOffloadedIsRead(t *testing.T) {
	t.Parallel()
	for status, want := range map[uint32]bool{0: false, seenReply | assured: false, offload | seenReply: true, offload | 1<<15: true} {
		if c, _ := parse(nfattr.AppendUint32(make([]byte, nfattr.HeaderLen), nl.CTA_STATUS, status)); c.Offloaded != want {
			t.Errorf("status %#x: offloaded %v", status, c.Offloaded)
		}
	}
}
