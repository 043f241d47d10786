package iptables

import (
	"testing"

	"github.com/namegate/namegate/testkit/diff"
)

func TestUsesMark(t *testing.T) {
	tests := []struct {
		rule string
		bit  uint32
		want bool
	}{
		// portmap and kube-proxy.
		{"-j MARK --set-xmark 0x2000/0x2000", 0x40, false},
		{"-j MARK --set-xmark 0x2000/0x2000", 0x2000, true},
		{"-m mark --mark 0x2000/0x2000 -j MASQUERADE", 0x2000, true},
		{"-j MARK --set-xmark 0x4000/0x4000", 0x4000, true},
		{"-m mark ! --mark 0x4000/0x4000 -j RETURN", 0x4000, true},
		{"-m mark ! --mark 0x4000/0x4000 -j RETURN", 0x40, false},
		{"-j MARK --or-mark 0x8000", 0x8000, true},
		{`-m comment --comment "kubernetes firewall for dropping marked packets" -m mark --mark 0x8000/0x8000 -j DROP`, 0x40, false},
		// Cilium.
		{"-m mark --mark 0x200/0xf00 -j ACCEPT", 0x40, false},
		{"-m mark --mark 0x200/0xf00 -j ACCEPT", 0x400, true},
		{"-m mark --mark 0x0/0xf00 -j ACCEPT", 0x100, true},
		// Felix.
		{"-j MARK --set-xmark 0x10000/0xffff0000", 0x40, false},
		{"-j MARK --set-xmark 0x10000/0xffff0000", 0x80000000, true},
		{"-m mark --mark 0x0/0x10000 -j RETURN", 0x10000, true},
		// AWS.
		{"-j CONNMARK --set-xmark 0x80/0x80", 0x80, true},
		{"-j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80", 0x80, true},
		{"-j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80", 0x40, false},
		{"-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff", 0x40, true},
		{"-j CONNMARK --save-mark --nfmask 0x0 --ctmask 0x40", 0x40, true},
		// Istio compares with 0x539 under a mask that has the default bit.
		{"-m mark --mark 0x539/0xfff -j RETURN", 0x40, true},
		{"-m mark --mark 0x539/0xfff -j RETURN", 0x1000, false},
		{"-m connmark --mark 0x111/0xfff -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", 0x40, true},
		// A match without a mask asks for every bit.
		{"-m mark --mark 0x539 -j RETURN", 0x40, true},
		// Written whole: without our bit it only takes an allowance away; a
		// connection's takes it from an admitted connection.
		{"-j MARK --set-xmark 0x1/0xffffffff", 0x40, false},
		{"-j MARK --set-xmark 0x41/0xffffffff", 0x40, true},
		{"-j MARK --set-mark 0x40", 0x40, true},
		{"-j MARK --set-mark 0x80", 0x40, false},
		{"-j CONNMARK --set-xmark 0x1/0xffffffff", 0x40, true},
		// Without masks every bit is copied.
		{"-j CONNMARK --save-mark", 0x40, true},
		{"-j CONNMARK --restore-mark", 0x40, true},
		{"-p tcp -j TPROXY --on-port 15001 --on-ip 0.0.0.0 --tproxy-mark 0x40/0x40", 0x40, true},
		{"-p tcp -j TPROXY --on-port 15001 --on-ip 0.0.0.0 --tproxy-mark 0x200/0xffffffff", 0x40, false},
		// Rules without marks, and incomplete ones.
		{"-p tcp -j ACCEPT", 0x40, false},
		{`-m comment --comment "--mark" -j ACCEPT`, 0x40, false},
		{"-m mark --mark", 0x40, false},
		{"", 0x40, false},
		{"-m mark --mark 0xffffffffff -j ACCEPT", 0x40, false},
	}
	for _, test := range tests {
		diff.Equal(t, test.want, usesMark(test.rule, test.bit), test.rule, test.bit)
	}
}
