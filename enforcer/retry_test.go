package enforcer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// TestARetryAfterARestartKeepsHomes has each step of the first roll-out of a successor fail: a
// pod's address keeps its home while the same snapshot is prepared again, and its queries
// are intercepted.
func TestARetryAfterARestartKeepsHomes(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		var before []string
		var next *policy.Snapshot
		eachFault(t, 2, false, func() (*world, func() error) {
			w := newWorld(t)
			w.links.SetHome(addr("10.1.0.5"), home)
			web := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
			w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
			before = w.nftElements()
			w.restart()
			next = w.compile([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
			return w, func() error { return w.rollOut(next) }
		}, func(f fault) {
			if !errors.Is(f.err, errInjected) {
				return
			}
			check := func(when string) {
				if f.at("10.1.0.5", "veth9", "") {
					t.Errorf("%s, %s: the pod's address passes on another pod's interface", f.when, when)
				}
				if gone := slices.DeleteFunc(slices.Clone(before), func(e string) bool { return slices.Contains(f.nftElements(), e) }); len(gone) > 0 {
					t.Errorf("%s, %s: nft has no more %q", f.when, when, gone)
				}
			}
			check("then")
			f.prepare(next)
			check("prepared again")
		})
	}
}

// nftElements returns the elements of the nft tables that are of no generation.
func (w *world) nftElements() (out []string) {
	for i, table := range []*knftables.Fake{w.inet, w.bridge} {
		for line := range strings.Lines(table.Dump()) {
			if words := strings.Fields(line); strings.HasPrefix(line, "add element") && !slices.Contains([]string{"intercept4", "intercept6", "giveback4", "giveback6"}, words[4]) {
				out = append(out, fmt.Sprint(i, words[4:]))
			}
		}
	}
	return out
}
