package nft

import (
	"testing"
	"time"

	"github.com/google/nftables"
)

// TestUnmoved: a flush by another program between the two readings must not make every later
// heartbeat a slow one.
func TestUnmoved(t *testing.T) {
	of := func(timeouts ...time.Duration) (out []nftables.SetElement) {
		for _, d := range timeouts {
			out = append(out, nftables.SetElement{Timeout: d})
		}
		return out
	}
	for _, tt := range []struct {
		name      string
		last, now []nftables.SetElement
		want      bool
	}{
		{"an older kernel", of(renewals[0]), of(renewals[0]), true},
		{"flushed meanwhile", of(renewals[0]), of(), false},
		{"expired before", of(), of(), false},
		{"renewed by another agent", of(0), of(renewals[0]), false},
	} {
		if got := unmoved(tt.last, tt.now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
