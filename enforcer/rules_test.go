package enforcer

import (
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// TestSecondNet asks the chain of the second net alone, as if the first were gone.
func TestSecondNet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow")}, pol("allow", "tcp/443 www.example.org"))
	const ours, candidate = DefaultMark, DefaultCandidate
	tests := []struct {
		what string
		p    packet
		want string
	}{
		{"new and not admitted", packet{Protocol: 6}, "DROP"},
		{"admitted", packet{Protocol: 6, Conn: ours}, "ACCEPT"},
		{"admitted, among other bits", packet{Protocol: 6, Conn: ours | 0x2000}, "ACCEPT"},
		{"other bits alone", packet{Protocol: 6, Conn: 0xffffffff &^ ours}, "DROP"},
		{"established and not admitted", packet{Protocol: 6, State: "ESTABLISHED"}, "DROP"},
		{"invalid", packet{Protocol: 6, State: "INVALID"}, "DROP"},
		{"a candidate that was not judged", packet{Protocol: 6, Mark: candidate, Conn: candidate}, "DROP"},
		{"the packet mark of a tracked connection", packet{Protocol: 6, Mark: ours}, "DROP"},
		{"untracked", packet{Protocol: 17, State: "UNTRACKED"}, "DROP"},
		{"untracked and marked", packet{Protocol: 17, State: "UNTRACKED", Mark: candidate}, "ACCEPT"},
		{"an answer to who asked the pod", packet{Protocol: 6, State: "ESTABLISHED", Reply: true}, "ACCEPT"},
	}
	for _, test := range tests {
		for _, src := range addrs("10.1.0.5 2001:db8:1::5") {
			p := test.p
			p.Src, p.Dst = src, addr("192.0.2.1")
			if src.Is6() {
				p.Dst = addr("2001:db8::1")
			}
			diff.Equal(t, test.want, w.machine(versionOf(src), "security").Run(chainDrop, &p), test.what, "from", src)
		}
	}
	back := []struct {
		what string
		p    packet
		want string
	}{
		{"a reply to an admitted connection", packet{Reply: true, Conn: ours}, "ACCEPT"},
		{"a reply to one that is not admitted", packet{Reply: true, State: "ESTABLISHED"}, "DROP"},
		{"a connection to the pod", packet{}, "ACCEPT"},
	}
	for _, test := range back {
		p := test.p
		p.Src, p.Dst, p.Protocol = addr("192.0.2.1"), addr("10.1.0.5"), 6
		diff.Equal(t, test.want, w.machine(4, "security").Run(chainDrop, &p), test.what)
	}
	for _, test := range []struct {
		what       string
		icmp, hops int
		dst, want  string
	}{
		{"neighbour discovery", 135, 255, "2001:db8:1::1", "ACCEPT"},
		{"discovery that has passed a router", 135, 254, "2001:db8:1::1", "DROP"},
		{"listener discovery to a group", 143, 1, "ff02::16", "ACCEPT"},
		{"listener discovery to an address", 143, 255, "2001:db8::1", "DROP"},
		{"an untracked echo", 128, 255, "2001:db8::1", "DROP"},
	} {
		p := packet{Src: addr("2001:db8:1::5"), Dst: addr(test.dst), Protocol: 58, State: "UNTRACKED", ICMP: test.icmp, Hops: test.hops}
		diff.Equal(t, test.want, w.machine(6, "security").Run(chainDrop, &p), test.what)
	}
	related := packet{Src: addr("10.1.0.5"), Dst: addr("192.0.2.1"), Protocol: 1, State: "RELATED"}
	diff.Equal(t, "ACCEPT", w.machine(4, "security").Run(chainDrop, &related), "an ICMP error of the pod's")
}

func TestStaleMarksAreClearedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow"))
	const all, others = 0xffffffff, 0xffffffff &^ (DefaultMark | DefaultCandidate)
	for _, test := range []struct {
		what       string
		p          packet
		mark, conn uint32
	}{
		{"a new connection", packet{Protocol: 6, Mark: all, Conn: all}, others, others},
		{"an expected connection with its master's mark", packet{Protocol: 6, State: "RELATED", Conn: all}, 0, others},
		{"an ICMP error of an admitted connection", packet{Protocol: 1, State: "RELATED", Conn: DefaultMark}, 0, DefaultMark},
		{"a candidate of an earlier packet", packet{Protocol: 6, State: "ESTABLISHED", Conn: DefaultCandidate}, 0, 0},
		{"an established connection", packet{Protocol: 6, State: "ESTABLISHED", Conn: all}, 0, all},
		{"a packet of a pod that is not selected", packet{Src: addr("10.1.0.9"), Protocol: 6, Mark: all, Conn: all}, all, all},
	} {
		p := test.p
		if p.Dst = addr("192.0.2.1"); !p.Src.IsValid() {
			p.Src = addr("10.1.0.5")
		}
		if w.machine(4, "mangle").Run("PREROUTING", &p); p.Mark != test.mark && test.p.Mark != 0 || p.Conn != test.conn {
			t.Errorf("%s: mark %#x, connection mark %#x, want %#x and %#x", test.what, p.Mark, p.Conn, test.mark, test.conn)
		}
	}
}
