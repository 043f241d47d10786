package enforcer

import (
	"context"
	"errors"
	"testing"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// TestARetryAfterARestartKeepsHomes has each step of the first roll-out of a successor fail: a
// pod's address keeps its home while the same snapshot is prepared again.
func TestARetryAfterARestartKeepsHomes(t *testing.T) {
	for n := 1; n < maxSteps; n++ {
		w := newWorld(t)
		w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
		web := pod("web", "10.1.0.5", "allow")
		w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
		w.restart()
		next := w.compile([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
		w.seams.forget(n, false)
		if err := w.rollOut(next); w.seams.steps < n {
			return
		} else if !errors.Is(err, errInjected) {
			continue
		}
		failed := w.seams.failed
		check := func(when string) {
			if w.at("10.1.0.5", "veth9", "") {
				t.Errorf("step %d, %q, failed, %s: the pod's address passes on another pod's interface", n, failed, when)
			}
		}
		check("then")
		w.seams.forget(0, false)
		fatal.If(t, w.e.Prepare(context.Background(), next))
		check("prepared again")
	}
}
