package enforcer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestARetryAfterARestartKeepsHomes has each step of the first roll-out of a successor fail: a
// pod's address keeps its home while the same snapshot is prepared again, and its queries
// are intercepted.
func TestARetryAfterARestartKeepsHomes(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		for n := 1; n < maxSteps; n++ {
			w := newWorld(t)
			w.links.SetHome(addr("10.1.0.5"), home)
			web := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
			w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
			before := w.nftElements()
			w.restart()
			next := w.compile([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
			w.seams.forget(n, false)
			if err := w.rollOut(next); w.seams.steps < n {
				break
			} else if !errors.Is(err, errInjected) {
				continue
			}
			failed := w.seams.failed
			check := func(when string) {
				if w.at("10.1.0.5", "veth9", "") {
					t.Errorf("step %d, %q, failed, %s: the pod's address passes on another pod's interface", n, failed, when)
				}
				if gone := slices.DeleteFunc(slices.Clone(before), func(e string) bool { return slices.Contains(w.nftElements(), e) }); len(gone) > 0 {
					t.Errorf("step %d, %q, failed, %s: nft has no more %q", n, failed, when, gone)
				}
			}
			check("then")
			w.seams.forget(0, false)
			fatal.If(t, w.e.Prepare(context.Background(), next))
			check("prepared again")
		}
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
