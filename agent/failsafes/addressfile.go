package failsafes

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/agent/statefile"
)

// maxNames bounds the names in a file. Nodes have a few.
const maxNames = 256

// addressFile has the last addresses of names. The next agent begins with them: while it cannot
// resolve a name, the node keeps the failsafe, and its policies stay enforced.
type addressFile struct {
	path   string // "" for none
	log    *slog.Logger
	last   map[string][]netip.Addr // that the file has
	failed bool                    // the last write
}

// savedAddresses is the text of a file.
type savedAddresses struct {
	Names map[string][]netip.Addr `json:"names"`
}

// load reads the file. One that cannot be read counts as none.
func (f *addressFile) load() map[string][]netip.Addr {
	if f.path == "" {
		return nil
	}
	var saved savedAddresses
	err := statefile.Read(f.path, &saved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = saved.check()
	}
	if err != nil {
		f.log.Warn("cannot read the addresses of failsafes that an earlier agent found; their names are resolved anew", "file", f.path, "error", err)
		return nil
	}
	f.last = saved.Names
	return saved.Names
}

// check returns an error for values that save does not write.
func (s *savedAddresses) check() error {
	if len(s.Names) > maxNames {
		return fmt.Errorf("%d names", len(s.Names))
	}
	for name, addrs := range s.Names {
		if len(name) > 253 || len(addrs) > maxAddrs || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" }) {
			return fmt.Errorf("the addresses of %.253q", name)
		}
	}
	return nil
}

// save writes the file if the addresses changed, or if they could not be written. The file at no time
// has a part of them. Without the file the next agent resolves the names anew.
func (f *addressFile) save(found map[string][]netip.Addr) {
	if f.path == "" || !f.failed && maps.EqualFunc(found, f.last, slices.Equal) {
		return
	}
	err := statefile.Write(f.path, savedAddresses{found})
	if err != nil && !f.failed {
		f.log.Warn("cannot save the addresses of failsafes for the next agent", "error", err)
	}
	f.failed, f.last = err != nil, found
}

// found returns the addresses of the names that have some, of the first maxNames names.
func (n names) found() map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, host := range slices.Sorted(maps.Keys(n)) {
		if s := n[host]; len(s.addrs) > 0 && len(host) <= 253 && len(out) < maxNames {
			out[host] = s.addrs
		}
	}
	return out
}
