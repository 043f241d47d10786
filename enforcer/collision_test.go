package enforcer

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestStartRefusesATakenBit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		family       iptables.Family
		table, chain string
		rule, taken  string
	}{
		{iptables.IPv4, "nat", "PREROUTING", "-m mark --mark 0x40/0x40 -j RETURN", "IPv4 nat: -A PREROUTING -m mark --mark 0x40/0x40 -j RETURN"},
		{iptables.IPv6, "mangle", "OTHER", "-j MARK --set-xmark 0xff/0xff", "IPv6 mangle: -A OTHER -j MARK --set-xmark 0xff/0xff"},
		{iptables.IPv4, "nat", "POSTROUTING", "-m mark --mark 0x20/0x20 -j RETURN", "mark bit 0x20 is used by another rule (IPv4 nat: -A POSTROUTING -m mark --mark 0x20/0x20 -j RETURN)"},
		{iptables.IPv4, "mangle", "FORWARD", "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "IPv4 mangle: -A FORWARD -j CONNMARK --restore-mark"},
		{iptables.IPv4, "filter", "FORWARD", "-m mark --mark 0x80/0x80 -j ACCEPT", ""},
		{iptables.IPv4, "mangle", "NAMEGATE-OLD", "-j MARK --set-xmark 0x40/0x40", ""},
	}
	for i, test := range slices.Concat(tests, tests) {
		w := newNode(t)
		w.otherBackend = iptables.NewFake()
		tx := iptables.NewTransaction(test.family, test.table)
		tx.Replace(test.chain, test.rule)
		// By either variant.
		fatal.If(t, []*iptables.Fake{w.chains, w.otherBackend}[i/len(tests)].Restore(context.Background(), tx))
		w.boot()
		_, err := w.e.Start(context.Background())
		if test.taken == "" {
			if err != nil {
				t.Errorf("%s in %s: %v", test.rule, test.chain, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.taken) || !strings.Contains(err.Error(), "directive mark") {
			t.Errorf("the error must name the rule %q and the directive, got: %v", test.taken, err)
		}
		if names, _ := w.sets.Names(); len(names) > 0 {
			t.Errorf("a refused start has made the sets %v", names)
		}
	}
}

func TestNewRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{Mark: 0, Candidate: 0x20}, {Mark: 0x41, Candidate: 0x20}, {Mark: 0x40}, {Mark: 0x40, Candidate: 0x60}, {Mark: 0x40, Candidate: 0x40},
		{Mark: 0x40, Candidate: 0x20, Hold: -1}, {Mark: 0x40, Candidate: 0x20, Hold: 1 << 60},
	} {
		if _, err := New(cfg, Kernel{}, nil, nil); err == nil {
			t.Errorf("New takes %+v", cfg)
		}
	}
}
