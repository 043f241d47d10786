package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestCounters(t *testing.T) {
	var c counters
	text := `{"version":"x","enforcer":{"grants":7,"evictedGrants":3},"proxy":{"allowed":100,"upstreamQueries":40,"queries":101},"audit":{"written":90,"dropped":10}}`
	fatal.If(t, json.Unmarshal([]byte(text), &c))
	said, err := work(counters{}, c, 100, false)
	fatal.If(t, err)
	for _, want := range []string{"asked upstream 40", "grants now 7", "evicted 3", "logged 100", "dropped 10"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
}

// An agent that answers without deciding, logging or granting is not measured.
func TestWorkRefuses(t *testing.T) {
	full := func() (c counters) {
		c.Proxy.Allowed, c.Audit.Written, c.Enforcer.Grants = 1000, 1000, 5
		return c
	}
	if _, err := work(counters{}, full(), 1000, false); err != nil {
		t.Errorf("an agent that did everything: %v", err)
	}
	for name, spoil := range map[string]func(*counters){
		"no decisions": func(c *counters) { c.Proxy.Allowed = 999 },
		"no log":       func(c *counters) { c.Audit.Written = 10 },
		"no grants":    func(c *counters) { c.Enforcer.Grants = 0 },
	} {
		c := full()
		spoil(&c)
		if said, err := work(counters{}, c, 1000, false); err == nil {
			t.Errorf("%s: %q", name, said)
		}
	}
	if _, err := work(full(), full(), 1, false); err == nil {
		t.Error("what an agent did before counts")
	}
	if said, err := work(counters{}, full(), 1000, true); err == nil {
		t.Errorf("an agent that logs, though it is to be silent: %q", said)
	}
	quiet := full()
	quiet.Audit.Written = 0
	if _, err := work(counters{}, quiet, 1000, true); err != nil {
		t.Errorf("a silent agent: %v", err)
	}
}
