package main

import (
	"math"
	"testing"
)

func TestAuditCost(t *testing.T) {
	for _, c := range []struct{ with, without, want float64 }{{90, 100, 10}, {100, 100, 0}, {50, 200, 75}, {110, 100, -10}} {
		f := auditCost(c.with, c.without)
		if math.Abs(f.Value-c.want) > 1e-9 || f.Unit != "%" || f.Peer != noAudit {
			t.Errorf("%v of %v a second: %+v, want %v", c.with, c.without, f, c.want)
		}
	}
}
