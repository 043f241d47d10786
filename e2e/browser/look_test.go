package browser

import (
	"testing"
	"time"
)

// troubled are agents with something wrong.
var troubled = []object{
	{"node": "node-1", "state": "well", "version": "v9", "problems": []object{}},
	{"node": "node-2", "state": "well", "version": "v9", "problems": []object{
		{"what": "queries lost", "message": "those of shop/cart-7d9f4b-9tz5m do not reach the agent: dropped"},
		{"what": "not as wanted", "message": "set NG4-2b1c since 2026-05-01T12:00:00Z: a repair is under way"},
	}},
	{"node": "node-3", "state": "unreachable", "message": "no agent answers at 192.0.2.3:9954: connection refused; it is asked again every 10 s", "problems": []object{}},
}

// TestScreenshots writes a picture of each view to bin/screenshots.
func TestScreenshots(t *testing.T) {
	f := newFake(t)
	f.shopping(time.Now())
	well := f.agents
	for _, v := range []struct{ name, fragment, ready string }{
		{"traffic", "#/traffic", "#picture path"},
		{"log", "#/log", "tr[data-row]"},
		{"grants", "#/grants", "tr[data-row]"},
		{"policies", "#/policies", ".card"},
		{"nodes", "#/nodes", ".card dl"},
	} {
		f.set(func() {
			if f.agents = well; v.name == "nodes" {
				f.agents = troubled
			}
		})
		for suffix, l := range map[string]look{"": desk, "-dark": {desk.width, desk.height, true}, "-narrow": {400, 800, false}} {
			t.Run(v.name+suffix, func(t *testing.T) {
				p := open(t, f.URL, v.fragment, l)
				p.wait("document.querySelector(%s)", quoted(v.ready))
				if wider := eval[int](p, "document.documentElement.scrollWidth - innerWidth"); wider > 0 {
					t.Errorf("the page is %d px wider than the window", wider)
				}
				p.picture(v.name + suffix)
				if v.name == "log" {
					eval[bool](p, "[...document.querySelectorAll('tr[data-row]')].find((r) => r.textContent.includes('telemetry')).click() ?? true")
					p.shows("#panel", "allow-telemetry.vendor.test", "cart-suggested")
					p.picture("why" + suffix)
				}
			})
		}
	}
}
