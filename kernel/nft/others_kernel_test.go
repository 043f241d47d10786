package nft

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// TestMarkUse: which rules of other programs use a bit of marks.
func TestMarkUse(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	tables, err := Open(oursID)
	fatal.If(t, err)
	none := func(ID) bool { return false }
	for _, test := range []struct {
		rule string
		uses bool
	}{
		{"meta mark set 0x00000040", true},
		{"meta mark set 0x00000539", false},
		{"ct mark set 0x00000001", true}, // written whole, our bit with it
		{"meta mark set mark or 0x00004000", false},
		{"meta mark set mark or 0x000040c0", true},
		{"meta mark set mark and 0xffffbfff", false},
		{"meta mark set mark and 0xffffffbf", true},
		{"meta mark set mark and 0xffffff00 xor 0x00000001", true},
		{"meta mark set ip saddr map { 192.0.2.1 : 0x1 }", true},
		{"meta mark set ct mark and 0x000000ff", true},
		{"meta mark set ct mark and 0x0000000f", false},
		{"ct mark set mark", true},
		{"ct mark set mark and 0x0000000f", true},
		{"meta mark set ct mark", true},
		{"ct mark set ct mark and 0xffffff7f xor 0x00000080", false},
		{"meta mark and 0x00004000 == 0x00004000 accept", false},
		{"meta mark and 0x00000040 == 0x00000040 accept", true},
		{"meta mark & 0x00000040 == 0x00000000 drop", true},
		{"meta mark & 0x000000f0 vmap { 0x10 : drop }", true},
		{"ct mark 0x00000080 return", false},
		{"ct mark != 0x000000c0 return", true},
		{"meta mark 0x00000000 accept", true},
		{"ip saddr . meta mark { 192.0.2.1 . 0x1 } accept", false},
		{"tcp dport 443 ip saddr 192.0.2.1 meta iif 0x40 accept", false},
		{`tcp dport 64 accept comment "mark of another kind"`, false},
	} {
		for _, command := range []string{"add table inet other", "delete table inet other", "add table inet other", "add chain inet other c { type filter hook forward priority 0; }", "add rule inet other c " + test.rule} {
			if out, err := exec.Command("nft", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		}
		use, unread, err := tables.MarkUse(0x40, none)
		if (use != "") != test.uses || len(unread) > 0 || err != nil {
			t.Errorf("%s: found %q, %v, %v", test.rule, use, unread, err)
		}
		if test.uses && !strings.HasPrefix(use, "table inet other, chain c, rule with handle ") {
			t.Errorf("found %q", use)
		}
	}
	fatal.If(t, exec.Command("nft", "add rule inet other c meta mark set 0x40").Run())
	if use, _, err := tables.MarkUse(0x40, func(n ID) bool { return n == ID{"inet", "other"} }); use != "" || err != nil {
		t.Errorf("in a table that is known: %q, %v", use, err)
	}
}

// TestMarkUseBesideANewerProgram: a set of another program has user data on which this program nft
// crashes. The rules are read all the same.
func TestMarkUseBesideANewerProgram(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	tables, err := Open(oursID)
	fatal.If(t, err)
	fatal.If(t, exec.Command("nft", "add table inet other; add chain inet other c; add rule inet other c meta mark set 0x40").Run())
	addNewerSet(t, tables.kernel)
	if use, unread, err := tables.MarkUse(0x40, func(ID) bool { return false }); !strings.HasPrefix(use, "table inet other") || len(unread) > 0 || err != nil {
		t.Errorf("found %q, %v, %v", use, unread, err)
	}
	crashes := exec.Command("nft", "list", "table", "inet", "newer").Run() != nil
	if err := tables.Setup(t.Context(), []Table{ours()}); crashes && (err == nil || !strings.Contains(err.Error(), "install a newer nftables")) || !crashes && err != nil {
		t.Errorf("the program crashes: %v, and the tables are written: %v", crashes, err)
	}
}

// addNewerSet adds a set whose key is an expression (NFTNL_UDATA_SET_KEY_TYPEOF of libnftnl) of a number
// that no version has yet.
func addNewerSet(t *testing.T, k kernel) {
	t.Helper()
	attribute := func(typ byte, value []byte) []byte { return append([]byte{typ, byte(len(value))}, value...) }
	number := binary.NativeEndian.AppendUint32(nil, 9999)
	key := attribute(3, append(attribute(0, number), attribute(1, attribute(0, number))...))
	var batch []byte
	message := func(typ, flags uint16, family byte, body func([]byte) []byte) {
		b, begin := nfattr.AppendHeader(batch, typ, flags, 0)
		b[begin+unix.SizeofNlMsghdr] = family
		if typ < unix.NFNL_SUBSYS_NFTABLES<<8 {
			binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
		}
		batch = body(b)
		nfattr.EndMessage(batch, begin)
	}
	empty := func(b []byte) []byte { return b }
	message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, empty)
	message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_INET, func(b []byte) []byte {
		return nfattr.AppendString(b, unix.NFTA_TABLE_NAME, "newer")
	})
	message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE|unix.NLM_F_ACK, unix.NFPROTO_INET, func(b []byte) []byte {
		b = nfattr.AppendString(nfattr.AppendString(b, unix.NFTA_SET_TABLE, "newer"), unix.NFTA_SET_NAME, "s")
		b = nfattr.AppendUint32(nfattr.AppendUint32(b, unix.NFTA_SET_KEY_TYPE, 7), unix.NFTA_SET_KEY_LEN, 4)
		return nfattr.Append(nfattr.AppendUint32(b, unix.NFTA_SET_ID, 1), unix.NFTA_SET_USERDATA, key)
	})
	message(unix.NFNL_MSG_BATCH_END, 0, 0, empty)
	replies, err := k.changes.Send(batch, 2)
	for _, r := range replies {
		err = errors.Join(err, r.Err)
	}
	fatal.If(t, err)
}

// TestElementsInDeclarations: a transaction that makes a table has the elements of its sets in
// declarations; one that only adds elements stays as it is.
func TestElementsInDeclarations(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	tables, err := Open(oursID)
	fatal.If(t, err)
	fatal.If(t, tables.Setup(t.Context(), []Table{ours()}))
	tx, w := tables.all[oursID].NewTransaction(), ours()
	w.refill(tx)
	if _, declared := inDeclarations(tx.String()); declared {
		t.Error("a transaction without elements")
	}
	if _, declared := inDeclarations("add element inet namegate a { 192.0.2.1 }\n"); declared {
		t.Error("a set that is not added")
	}
	got, declared := inDeclarations("add table inet t\nadd map inet t m { type ipv4_addr : verdict ; }\nadd set inet t s { type ifname . ipv4_addr ; }\n" +
		"add element inet t m { 192.0.2.1 : goto c }\nadd chain inet t c\nadd element inet t s { \"eth0\" . 192.0.2.1 }\nadd element inet t m { 192.0.2.2 comment \"x\" : goto c }\nflush set inet t s\n")
	want := "add table inet t\nadd map inet t m { type ipv4_addr : verdict ; }\nadd set inet t s { type ifname . ipv4_addr ; }\nadd chain inet t c\nflush set inet t s\n" +
		"add map inet t m { type ipv4_addr : verdict ; elements = { 192.0.2.1 : goto c , 192.0.2.2 comment \"x\" : goto c } ; }\nadd set inet t s { type ifname . ipv4_addr ; elements = { \"eth0\" . 192.0.2.1 } ; }\n"
	if got != want || !declared {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestRemoveChains: chains with the prefix and the jumps to them go, from tables that
// iptables wrote, without its programs. All else stays.
func TestRemoveChains(t *testing.T) {
	t.Parallel()
	netns.Own(t)
	run := func(command string) string {
		t.Helper()
		words := strings.Fields(command)
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return string(out)
	}
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		for _, command := range []string{
			"-t mangle -N NAMEGATE-NAMES", "-t mangle -N NAMEGATE-P-1", "-t mangle -N OTHER", "-t mangle -A PREROUTING -j NAMEGATE-NAMES",
			"-t mangle -A NAMEGATE-NAMES -p tcp -m mark --mark 0x1 -g NAMEGATE-P-1", "-t mangle -A OTHER -m comment --comment NAMEGATE-P-1 -j RETURN",
			"-t mangle -A PREROUTING -p udp -j OTHER", "-t mangle -A OTHER -p udp -g NAMEGATE-P-1",
			"-t security -N NAMEGATE-DROP", "-t security -A FORWARD -j NAMEGATE-DROP", "-A FORWARD -p icmp -j ACCEPT",
		} {
			run(program + " -w " + command)
		}
	}
	tables, err := Open(oursID)
	fatal.If(t, err)
	for range 2 { // once more with nothing to remove
		fatal.If(t, tables.RemoveChains(t.Context(), "NAMEGATE-"))
		for _, program := range []string{"iptables-nft-save", "ip6tables-nft-save"} {
			var left []string
			for line := range strings.Lines(run(program)) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "-A ") {
					left = append(left, line)
				}
			}
			slices.Sort(left)
			want := []string{"-A FORWARD -p icmp -j ACCEPT", "-A OTHER -m comment --comment NAMEGATE-P-1 -j RETURN", "-A PREROUTING -p udp -j OTHER"}
			if !slices.Equal(left, want) {
				t.Errorf("%s: %q, want %q", program, left, want)
			}
			if out := run(program); strings.Contains(out, ":NAMEGATE-") || !strings.Contains(out, ":OTHER") {
				t.Errorf("%s:\n%s", program, out)
			}
		}
	}
}
