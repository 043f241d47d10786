package conntrack

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/diff"
)

// TestIdle: the time left is compared with that which the last packet gave.
func TestIdle(t *testing.T) {
	t.Parallel()
	within := func(tcp time.Duration) timeouts {
		return timeouts{
			byProtocol: map[uint8]time.Duration{6: tcp * time.Second, 17: 120 * time.Second, 136: 120 * time.Second, 132: 210 * time.Second},
			tcpUnacked: 200 * time.Second, tcpRetransmitted: 300 * time.Second,
		}
	}
	of, short := within(1000), within(100)
	for _, test := range []struct {
		name     string
		of       timeouts
		protocol uint8
		left     time.Duration
		unacked  bool
		want     time.Duration
	}{
		{"TCP", of, 6, 990, false, 10},
		{"TCP, for long", of, 6, 100, false, 900},
		{"TCP, unacknowledged", of, 6, 190, true, 10},
		{"TCP, retransmitted", of, 6, 250, true, 50},
		{"TCP, a timeout below that of unacknowledged data", short, 6, 90, true, 10},
		{"TCP, of a timeout that was longer", short, 6, 101, false, 0},
		{"TCP, unacknowledged, of a timeout that was longer", short, 6, 101, true, 0},
		{"UDP", of, 17, 120, false, 0},
		{"UDP-Lite", of, 136, 100, false, 20},
		{"SCTP", of, 132, 200, false, 10},
		{"GRE, which the kernel has not", of, 47, 200, false, 0},
		{"another protocol", of, 50, 200, false, 0},
	} {
		c := tracked{Flow: Flow{Protocol: test.protocol}, left: test.left * time.Second, unacked: test.unacked}
		diff.Equal(t, test.want*time.Second, c.idle(test.of), test.name)
	}
	offloaded := tracked{Flow: Flow{Protocol: 6, Offloaded: true}}
	diff.Equal(t, 0, offloaded.idle(of), "offloaded")
}

// TestOffloadedIsRead: by the bit of the status, whatever the others are.
func TestOffloadedIsRead(t *testing.T) {
	t.Parallel()
	for status, want := range map[uint32]bool{0: false, seenReply | assured: false, offload | seenReply: true, offload | 1<<15: true} {
		if c, _ := parse(nfattr.AppendUint32(make([]byte, nfattr.HeaderLen), nl.CTA_STATUS, status)); c.Offloaded != want {
			t.Errorf("status %#x: offloaded %v", status, c.Offloaded)
		}
	}
}
