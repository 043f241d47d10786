package conntrack

import (
	"testing"
	"time"
)

// TestIdle: the time left is compared with that which the last packet gave.
func TestIdle(t *testing.T) {
	t.Parallel()
	of := timeouts{tcp: 1000 * time.Second, tcpUnacked: 200 * time.Second, tcpRetransmitted: 300 * time.Second, udp: 120 * time.Second, sctp: 210 * time.Second}
	short := of
	short.tcp = 100 * time.Second
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
		{"TCP, of a timeout that was longer", short, 6, 101, false, -1},
		{"TCP, unacknowledged, of a timeout that was longer", short, 6, 101, true, -1},
		{"UDP", of, 17, 120, false, 0},
		{"UDP-Lite", of, 136, 100, false, 20},
		{"SCTP", of, 132, 200, false, 10},
		{"GRE, which the kernel has not", of, 47, 200, false, -1},
		{"another protocol", of, 50, 200, false, -1},
	} {
		e := established{left: test.left * time.Second, unacked: test.unacked}
		if e.Protocol = test.protocol; test.want != -1 {
			test.want *= time.Second
		}
		if got := e.at(test.of).Idle; got != test.want {
			t.Errorf("%s: idle for %v, want %v", test.name, got, test.want)
		}
	}
	offloaded := established{offloaded: true}
	if offloaded.Protocol = 6; offloaded.at(of).Idle != 0 {
		t.Errorf("offloaded: idle for %v", offloaded.at(of).Idle)
	}
}
