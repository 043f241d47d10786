package ipset_test

import (
	"net"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// packets are the packets that matched the entry of an address, in a set and in a listing of
// all.
func packets(t *testing.T, i ipset.Interface, set, addr string) (n uint64) {
	t.Helper()
	head, entries, err := ipset.Read(i, set)
	fatal.If(t, err)
	if head.Counters != (set != "plain") {
		t.Errorf("the set %s has counters: %v", set, head.Counters)
	}
	found := false
	for _, e := range entries {
		if e.Addr == netip.MustParseAddr(addr) {
			n, found = e.Packets, true
		}
	}
	all := uint64(0)
	fatal.If(t, i.Each("", func(s ipset.Set, entries []ipset.Entry) {
		for _, e := range entries {
			if s.Name == set && e.Addr == netip.MustParseAddr(addr) {
				all = e.Packets
			}
		}
	}))
	if !found || all != n {
		t.Errorf("%s of set %s: found %v, with %d packets, %d in a listing of all", addr, set, found, n, all)
	}
	return n
}

// fresh is an entry that the set does not have.
func fresh(addr string) ipset.Entry {
	e := entry(addr)
	e.New = true
	return e
}

// TestCounters: an entry counts its packets, also when it is added again, and one that takes the
// place of another begins with the number that it is given.
func TestCounters(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	run := func(words ...string) {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	run("ip", "link", "set", "lo", "up")
	run("ip", "route", "add", "local", "192.0.2.0/24", "dev", "lo")
	run("ip", "-6", "route", "add", "local", "2001:db8::/64", "dev", "lo")
	i, err := ipset.Open()
	fatal.If(t, err)
	defer i.Close()
	counted, plain, six := grants("counted"), grants("plain"), grants("six")
	counted.Counters, six.Counters, six.IPv6 = true, true, true
	counted.HashSize = 64
	ensure(t, i, counted, plain, six)
	for name, program := range map[string]string{"counted": "iptables", "plain": "iptables", "six": "ip6tables"} {
		run(program, "-A", "OUTPUT", "-p", "udp", "-m", "set", "--match-set", name, "dst")
	}
	packet := func(to string) {
		c, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		fatal.If(t, err)
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, set, addr string, want uint64) {
		t.Helper()
		diff.Equal(t, want, packets(t, i, set, addr), what, set, addr)
	}
	for _, test := range []struct{ set, addr, other string }{{"counted", "192.0.2.1", "192.0.2.2"}, {"six", "2001:db8::1", "2001:db8::2"}} {
		fatal.If(t, add(i, test.set, fresh(test.addr), fresh(test.other)))
		want("new", test.set, test.addr, 0)
		packet(test.addr)
		packet(test.addr)
		want("matched", test.set, test.addr, 2)
		want("another was matched", test.set, test.other, 0)
		fatal.If(t, add(i, test.set, entry(test.addr)))
		want("added again", test.set, test.addr, 2)
		begun := fresh(test.addr)
		begun.Packets = 7
		fatal.If(t, add(i, test.set, begun))
		packet(test.addr)
		want("added with a count", test.set, test.addr, 8)
		for range 64 { // the kernel gives places away again
			fatal.If(t, remove(i, test.set, entry(test.addr)))
			ops := []ipset.Op{{Set: test.set, Entries: []ipset.Entry{fresh(test.addr)}}}
			i.Apply(ops)
			fatal.If(t, ops[0].Err)
			want("in the place of another", test.set, test.addr, 0)
			packet(test.addr)
		}
	}
	fatal.If(t, add(i, "plain", entry("192.0.2.1"), entry("192.0.2.2")))
	packet("192.0.2.1")
	want("in a set without counters", "plain", "192.0.2.1", 0)
}

// TestASetMadeAnewWithoutCounters takes no new entry until it is repaired.
func TestASetMadeAnewWithoutCounters(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i ipset.Interface) {
		set := grants("a")
		set.Counters, set.HashSize, set.MaxElem = true, 64, 1000
		ensure(t, i, grants("a"))
		if err := add(i, "a", fresh("192.0.2.1")); err == nil || ipset.IsNotFound(err) {
			t.Errorf("a counter for a set without: %v", err)
		}
		want := []ipset.Entry{fresh("192.0.2.1")}
		d, err := ipset.Compare(i, set, want, func(ipset.Entry) bool { return true })
		if err != nil || !d.Foreign {
			t.Errorf("the set does not differ: %+v, %v", d, err)
		}
		fatal.If(t, ipset.Repair(i, set, d, want))
		if d, err := ipset.Compare(i, set, want, func(ipset.Entry) bool { return true }); err != nil || d.Any() {
			t.Errorf("the repaired set differs: %+v, %v", d, err)
		}
		fatal.If(t, add(i, "a", fresh("192.0.2.2")))
	})
}
