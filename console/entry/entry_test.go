package entry

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestEntry(t *testing.T) {
	pin := Pin{1, 2, 255}
	for _, e := range []Entry{
		{"n1", []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:9954"), netip.MustParseAddrPort("[2001:db8::1]:1")}, pin},
		{"ip-192-0-2-1.example.org", nil, pin}, // for port-forwards alone
	} {
		text, err := e.Encode()
		fatal.If(t, err)
		got, err := Decode(e.Node, text)
		fatal.If(t, err)
		diff.Error(t, e, got)
		if bad := validation.IsQualifiedName(e.Key()); len(bad) > 0 {
			t.Errorf("%s is no annotation: %v", e.Key(), bad)
		}
	}
	text, err := Entry{"n1", []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:9954")}, pin}.Encode()
	fatal.If(t, err)
	diff.Equal(t, `{"addresses":["192.0.2.1:9954"],"key":"sha256/AQL/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`, text, "published")
}

// TestLongNode: the longest name of a node is an annotation's.
func TestLongNode(t *testing.T) {
	name := strings.Repeat(strings.Repeat("a", 62)+".", 4)[:251] + "ab"
	if len(name) != 253 || len(validation.IsQualifiedName(Entry{Node: name}.Key())) > 0 {
		t.Errorf("%d characters: %v", len(name), validation.IsQualifiedName(Entry{Node: name}.Key()))
	}
}

func TestBadEntries(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "read the console of node n1",
		`{"addresses":["n1:1"],"key":"x"}`:  "read the console of node n1",
		`{"addresses":[],"key":"md5/AQL/"}`: "is no fingerprint of a key",
		`{"key":"sha256/AQL/"}`:             "is no fingerprint of a key",
		`{"key":"sha256/%"}`:                "is no fingerprint of a key",
		`{"key":"AQL/"}`:                    "is no fingerprint of a key",
		`{"addresses":["192.0.2.1:9954"]}`:  "has no key",
	} {
		if _, err := Decode("n1", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestLeases: the names are the sixteen of the chart's Role, a node has always the
// same, and nodes are spread over all.
func TestLeases(t *testing.T) {
	names := LeaseNames()
	if len(names) != 16 || names[0] != "namegate-console-0" || names[15] != "namegate-console-f" {
		t.Errorf("names %q", names)
	}
	for node, want := range map[string]string{"node-a": "namegate-console-3", "node-b": "namegate-console-6"} {
		diff.Equal(t, want, LeaseOf(node), node, "has another Lease: agents and commands of other versions look there")
	}
	count := map[string]int{}
	for i := range 5000 {
		count[LeaseOf("ip-10-0-"+strings.Repeat("1", i%7)+string(rune('a'+i%26))+"-"+strings.Repeat("x", i/200)+string(rune('0'+i%10))+".example.org")]++
	}
	diff.Equal(t, 16, len(count), "Leases of the nodes")
}

// FuzzEntry: any text in the annotation is read or refused, and a read entry is written
// unchanged.
func FuzzEntry(f *testing.F) {
	f.Add(`{"addresses":["192.0.2.1:9954"],"key":"sha256/AQL/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`)
	f.Add(`{"key":"sha256/"}`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Decode("n", text)
		if err != nil {
			return
		}
		again, err := e.Encode()
		fatal.If(t, err)
		back, err := Decode("n", again)
		if err != nil || back.Pin != e.Pin || !slices.Equal(back.Addresses, e.Addresses) {
			t.Errorf("%s became %s: %v", text, again, err)
		}
	})
}

// TestManyPublishedAddresses: an agent that published thousands does not keep its
// callers at dialling them.
func TestManyPublishedAddresses(t *testing.T) {
	var at []netip.AddrPort
	for i := range 5000 {
		at = append(at, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1+i)))
	}
	text, err := Entry{"n1", at, Pin{1}}.Encode()
	fatal.If(t, err)
	e, err := Decode("n1", text)
	fatal.If(t, err)
	if len(e.Addresses) != maxDial || e.Addresses[0] != at[0] {
		t.Errorf("%d addresses", len(e.Addresses))
	}
}
