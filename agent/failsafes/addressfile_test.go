package failsafes

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestAnAgentThatStartsWithoutDNS: it has the addresses of names that an earlier agent found, and says so,
// until a lookup has an answer. A name that no agent resolved stays unknown.
func TestAnAgentThatStartsWithoutDNS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "failsafes.json")
	files := fstest.MapFS{"etc/chrony.conf": file("server time.test\n")}
	first := startWith(t, files, path, map[string][]netip.Addr{"time.test": addrs("192.0.2.123")})
	first.want(first.begin(), "API server", "192.0.2.10")
	first.names.set("api.test", addrs("192.0.2.11 2001:db8::11")...)
	first.clock.Step(30 * time.Second)
	first.next()
	first.end()

	files["etc/chrony.conf"] = file("server time.test\nserver later.test\n")
	next := startWith(t, files, path, map[string][]netip.Addr{"api.test": nil, "time.test": nil, "later.test": nil}) // an outage
	l := next.begin()
	next.want(l, "API server", "192.0.2.11 2001:db8::11")
	next.want(l, "time", "192.0.2.123")
	const said = "; its addresses are the last ones that were found on this node; write `failsafe ADDRESS:"
	for _, f := range l.Findings {
		if known := !strings.Contains(f.Message, "later.test"); f.Stale != known || strings.Contains(f.Message, said) != known {
			t.Errorf("%+v", f)
		}
	}
	if len(l.Findings) != 3 || l.Complete() {
		t.Errorf("findings %v", l.Findings)
	}
	next.names.set("api.test", addrs("192.0.2.12")...)
	next.clock.Step(retryTTL)
	l = next.next()
	next.want(l, "API server", "(192.0.2.11) (2001:db8::11) 192.0.2.12")
	if len(l.Findings) != 2 {
		t.Errorf("findings %v", l.Findings)
	}
	next.names.set("api.test") // an outage again, of a name that this agent resolved
	next.clock.Step(30 * time.Second)
	for _, f := range next.next().Findings {
		if strings.Contains(f.Message, "api.test") && (!f.Stale || strings.Contains(f.Message, said)) {
			t.Errorf("%+v", f)
		}
	}
}

// TestAnAgentThatFollows: the addresses that an earlier agent found and this one does not stay as former ones.
func TestAnAgentThatFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "failsafes.json")
	first := startWith(t, nil, path, nil)
	first.begin()
	first.end()
	next := startWith(t, nil, path, map[string][]netip.Addr{"api.test": addrs("192.0.2.11")})
	l := next.begin()
	next.want(l, "API server", "(192.0.2.10) 192.0.2.11")
	if len(l.Findings) > 0 {
		t.Errorf("findings %v", l.Findings)
	}
	next.clock.Step(Keep)
	next.want(next.next(), "API server", "192.0.2.11")
}

// TestAnAgentThatCannotReadItsSources leaves the file of an earlier one as it is.
func TestAnAgentThatCannotReadItsSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "failsafes.json")
	first := startWith(t, nil, path, nil)
	first.begin()
	first.end()
	before, err := os.ReadFile(path)
	fatal.If(t, err)
	next := startWith(t, fstest.MapFS{"etc/kubernetes/kubelet.conf": nil}, path, nil)
	next.begin()
	next.end()
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%s, %v, want %s", after, err, before)
	}
}

// TestAddressFile: what was saved is loaded; a file that is not one of save's counts as none, and that is
// told; a folder that cannot be written is told once, and the file is written when it can be.
func TestAddressFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "failsafes.json")
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	open := func(path string) *addressFile { return &addressFile{path: path, log: log} }
	if got := open(path).load(); got != nil || said.Len() > 0 {
		t.Errorf("without a file: %v, %s", got, said.String())
	}
	many := map[string][]netip.Addr{"api.test": addrs("192.0.2.10 2001:db8::10")}
	open(path).save(many)
	if got := open(path).load(); !reflect.DeepEqual(got, many) || said.Len() > 0 {
		t.Errorf("%v, %s", got, said.String())
	}
	names := make([]string, maxNames+1)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d.test":["192.0.2.1"]`, i)
	}
	for what, text := range map[string]string{
		"a part":             `{"names":{"api.te`,
		"no addresses":       `{"names":{"api.test":["192.0.2.300"]}}`,
		"an address of none": `{"names":{"api.test":[""]}}`,
		"a zone":             `{"names":{"api.test":["fe80::1%eth0"]}}`,
		"a long name":        `{"names":{"` + strings.Repeat("a", 254) + `":["192.0.2.1"]}}`,
		"many addresses":     `{"names":{"api.test":["` + strings.Repeat(`192.0.2.1","`, maxAddrs) + `192.0.2.2"]}}`,
		"many names":         `{"names":{` + strings.Join(names, ",") + `}}`,
		"a large file":       strings.Repeat(" ", 1<<20+1) + `{"names":{}}`,
	} {
		said.Reset()
		fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
		if got := open(path).load(); got != nil || !strings.Contains(said.String(), "cannot read the addresses") {
			t.Errorf("%s: %v, said %q", what, got, said.String())
		}
	}
	said.Reset()
	f := open(filepath.Join(dir, "missing", "failsafes.json"))
	f.save(many)
	f.save(many)
	if n := strings.Count(said.String(), "cannot save the addresses"); n != 1 {
		t.Errorf("said %d times: %s", n, said.String())
	}
	fatal.If(t, os.Mkdir(filepath.Join(dir, "missing"), 0o700))
	f.save(many)
	if got := open(f.path).load(); !reflect.DeepEqual(got, many) {
		t.Errorf("after the folder came: %v", got)
	}
}

// TestFoundIsBounded: a file has the first names alone.
func TestFoundIsBounded(t *testing.T) {
	all := names{"none.test": {}}
	for i := range maxNames + 10 {
		all[fmt.Sprintf("n%04d.test", i)] = &name{addrs: addrs("192.0.2.1")}
	}
	got := all.found()
	if len(got) != maxNames || got["n0000.test"] == nil || got[fmt.Sprintf("n%04d.test", maxNames)] != nil {
		t.Errorf("%d names", len(got))
	}
}
