package wire_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"github.com/namegate/namegate/testkit/fatal"
	"sigs.k8s.io/knftables"
)

const table = "wire"

// inNode runs a test in a network namespace with an empty table.
func inNode(t *testing.T, test func(s *nfattr.Socket)) {
	if os.Getuid() != 0 {
		t.Fatal("this test writes to the kernel: run it as root")
	}
	l, err := lab.New(lab.Routed)
	fatal.If(t, err)
	t.Cleanup(func() { _ = l.Remove() })
	fatal.If(t, l.Node.Do(func() error {
		if err := exec.Command("nft", "add", "table", "inet", table).Run(); err != nil {
			return err
		}
		s, err := nfattr.OpenSocket()
		if err != nil {
			return err
		}
		defer s.Close()
		test(s)
		return nil
	}))
}

func listed(t *testing.T) string {
	out, err := exec.Command("nft", "list", "table", "inet", table).CombinedOutput()
	fatal.If(t, err)
	return string(out)
}

// TestRefusedTransaction: a transaction with a change that the kernel refuses changes nothing,
// and its error names the object of that change.
func TestRefusedTransaction(t *testing.T) {
	inNode(t, func(s *nfattr.Socket) {
		b := wire.New(knftables.InetFamily, table, nil)
		b.Add(&knftables.Set{Name: "made", Type: "ipv4_addr"})
		b.Add(&knftables.Set{Name: "also", Type: "ipv6_addr"})
		b.Delete(&knftables.Set{Name: "missing"})
		refused, err := b.Commit(s)
		if !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), "missing") || len(refused) != 1 || refused[0].Message != 2 {
			t.Errorf("%v, %v", refused, err)
		}
		if text := listed(t); strings.Contains(text, "made") || strings.Contains(text, "also") {
			t.Errorf("after a refused transaction:\n%s", text)
		}
	})
}

// TestElementsOfEveryType: elements are read as they were written.
func TestElementsOfEveryType(t *testing.T) {
	inNode(t, func(s *nfattr.Socket) {
		for _, test := range []struct {
			types, key []string
			text       string
		}{
			{[]string{"ipv4_addr"}, []string{"192.0.2.1"}, "192.0.2.1"},
			{[]string{"ipv6_addr", "inet_proto", "inet_service"}, []string{"2001:db8::1", "sctp", "443"}, "2001:db8::1 . sctp . 443"},
			{[]string{"inet_service", "inet_proto"}, []string{"53", "udp"}, "53 . udp"},
		} {
			b := wire.New(knftables.InetFamily, table, func(string) ([]string, bool) { return test.types, false })
			b.Add(&knftables.Set{Name: "set", Type: strings.Join(test.types, " . ")})
			b.Add(&knftables.Element{Set: "set", Key: test.key})
			_, err := b.Commit(s)
			fatal.If(t, err)
			if text := listed(t); !strings.Contains(text, "elements = { "+test.text+" }") {
				t.Errorf("%q:\n%s", test.key, text)
			}
			b = wire.New(knftables.InetFamily, table, nil)
			b.Delete(&knftables.Set{Name: "set"})
			_, err = b.Commit(s)
			fatal.If(t, err)
		}
	})
}
