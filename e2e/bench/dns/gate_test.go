package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/proxy/corefile"
)

func parsed(t *testing.T, cache bool, m manner) *corefile.Config {
	t.Helper()
	c, err := corefile.Parse("Corefile", strings.Replace(gateText(cache, m), "AUDIT", "/dev/null", 1))
	if err != nil {
		t.Fatal(fmt.Errorf("the agent's Corefile: %w", err))
	}
	return c
}

// The measured agent keeps answers, logs, and is not stopped by its own bounds.
func TestCorefileOfTheMeasuredAgent(t *testing.T) {
	c := parsed(t, true, manner{limits: raised})
	if c.Audit.Off || c.Audit.Path == "" {
		t.Error("it does not log")
	}
	if z := c.Zones[len(c.Zones)-1]; z.Cache == nil || len(z.To) != 1 {
		t.Errorf("the root zone is %+v", z)
	}
	if c.Limits.RatePerPod < fastest || c.Limits.QueriesPerPod < 10*outstanding || c.CacheEntries < keptNames {
		t.Errorf("bounds are in the way: %+v, %d entries", c.Limits, c.CacheEntries)
	}
	if parsed(t, false, manner{limits: raised}).Zones[0].Cache != nil {
		t.Error("it keeps answers although it is told not to")
	}
}

// Fairness is measured with what every agent has.
func TestCorefileOfTheFairAgent(t *testing.T) {
	c := parsed(t, true, manner{limits: usual})
	if c.Limits != corefile.Default().Limits {
		t.Errorf("the limits are not the defaults: %+v", c.Limits)
	}
	if c.Limits.RatePerPod >= floodRate || c.Limits.RatePerPod < 2*neighbourRate {
		t.Errorf("%d queries a second of a pod: the flood of %d is no flood, or the neighbour's %d are too many", c.Limits.RatePerPod, floodRate, neighbourRate)
	}
}

// What audit costs is measured with agents that differ in that alone.
func TestCorefileOfTheSilentAgent(t *testing.T) {
	logs, silent := parsed(t, true, manner{limits: raised}), parsed(t, true, manner{limits: raised, silent: true})
	if !silent.Audit.Off {
		t.Error("it logs")
	}
	logs.Audit = silent.Audit
	if a, b := logs.Zones[0].Cache, silent.Zones[0].Cache; a == nil || b == nil || *a != *b {
		t.Errorf("one keeps answers as %+v, the other as %+v", a, b)
	}
	logs.Zones, silent.Zones = nil, nil
	if a, b := fmt.Sprintf("%+v", *logs), fmt.Sprintf("%+v", *silent); a != b {
		t.Errorf("they differ:\n%s\n%s", a, b)
	}
}
