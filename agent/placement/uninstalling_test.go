package placement

import (
	"context"
	"testing"

	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestUninstalling: the mark is seen when it comes and when it goes, and a
// DaemonSet that is gone is as good as marked.
func TestUninstalling(t *testing.T) {
	p, c := begin(t, node(), agents())
	if p.Uninstalling() {
		t.Error("uninstalling without knowledge")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	fatal.Await(t, "the DaemonSet is watched", func() bool { return p.seen.Load() && watched(c, "daemonsets") })
	if p.Uninstalling() {
		t.Error("uninstalling without the mark")
	}
	marked := agents()
	marked.Annotations = map[string]string{status.UninstallingAnnotation: "true"}
	put(t, c, marked)
	fatal.Await(t, "the mark is seen", p.Uninstalling)
	put(t, c, agents())
	fatal.Await(t, "the mark is gone", func() bool { return !p.Uninstalling() })
	cancel()
	<-done
	fatal.If(t, p.sets.GetStore().Delete(agents()))
	if !p.Uninstalling() {
		t.Error("a DaemonSet that is gone writes on")
	}
}
