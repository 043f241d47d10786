package access

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestEntry(t *testing.T) {
	pin := Pin{1, 2, 255}
	for _, e := range []entry{
		{"n1", []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:9954"), netip.MustParseAddrPort("[2001:db8::1]:1")}, pin},
		{"ip-192-0-2-1.example.org", nil, pin}, // for port-forwards alone
	} {
		text, err := e.encode()
		fatal.If(t, err)
		got, err := decodeEntry(e.node, text)
		fatal.If(t, err)
		if !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, want %+v", got, e)
		}
		if bad := validation.IsQualifiedName(e.key()); len(bad) > 0 {
			t.Errorf("%s is no annotation: %v", e.key(), bad)
		}
	}
	text, err := entry{"n1", []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:9954")}, pin}.encode()
	fatal.If(t, err)
	if want := `{"addresses":["192.0.2.1:9954"],"key":"sha256/AQL/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`; text != want {
		t.Errorf("published is %s, want %s", text, want)
	}
}

// TestLongNode: the longest name of a node is an annotation's.
func TestLongNode(t *testing.T) {
	name := strings.Repeat(strings.Repeat("a", 62)+".", 4)[:251] + "ab"
	if len(name) != 253 || len(validation.IsQualifiedName(entry{node: name}.key())) > 0 {
		t.Errorf("%d characters: %v", len(name), validation.IsQualifiedName(entry{node: name}.key()))
	}
}

func TestBadEntries(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "read the console of node n1",
		`{"addresses":["n1:1"],"key":"x"}`:  "read the console of node n1",
		`{"addresses":[],"key":"md5/AQL/"}`: "does not begin with sha256/",
		`{"key":"sha256/AQL/"}`:             "is not that of a key",
		`{"key":"sha256/%"}`:                "is not that of a key",
	} {
		if _, err := decodeEntry("n1", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestLeases: the names are the sixteen of the chart's Role, a node has always the
// same, and nodes are spread over all.
func TestLeases(t *testing.T) {
	names := leaseNames()
	if len(names) != 16 || names[0] != "namegate-console-0" || names[15] != "namegate-console-f" {
		t.Errorf("names %q", names)
	}
	for node, want := range map[string]string{"node-a": "namegate-console-3", "node-b": "namegate-console-6"} {
		if got := leaseOf(node); got != want {
			t.Errorf("%s is in %s, want %s: agents and commands of other versions look there", node, got, want)
		}
	}
	count := map[string]int{}
	for i := range 5000 {
		count[leaseOf("ip-10-0-"+strings.Repeat("1", i%7)+string(rune('a'+i%26))+"-"+strings.Repeat("x", i/200)+string(rune('0'+i%10))+".example.org")]++
	}
	if len(count) != 16 {
		t.Errorf("nodes are in %d Leases", len(count))
	}
}

// FuzzEntry: any text in the annotation is read or refused, and a read entry is written
// unchanged.
func FuzzEntry(f *testing.F) {
	f.Add(`{"addresses":["192.0.2.1:9954"],"key":"sha256/AQL/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`)
	f.Add(`{"key":"sha256/"}`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := decodeEntry("n", text)
		if err != nil {
			return
		}
		again, err := e.encode()
		fatal.If(t, err)
		back, err := decodeEntry("n", again)
		if err != nil || back.pin != e.pin || !slices.Equal(back.addresses, e.addresses) {
			t.Errorf("%s became %s: %v", text, again, err)
		}
	})
}
