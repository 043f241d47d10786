package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestLiveUpdates(t *testing.T) {
	f, p := shown(t, "#/traffic", desk)
	p.shows("#count", "9 workloads, 20 names")
	added := use{"shop", "app=search", "search-0", "new.example.org", "192.0.2.99", 443, "denied", 7, 2, "shop/front", "", "unmatched"}
	f.set(func() { f.edge(time.Now(), added) })
	f.push("traffic", object{"at": time.Now(), "edges": []object{f.edges[len(f.edges)-1]}, "gone": []string{"e1"}})
	p.shows("ul.from .row", "search")
	p.shows("ul.to .row", "new.example.org")
	p.hides("ul.to .row", "cdn.example.org")
	p.shows("#verdict-denied", "343")

	eval[bool](p, "(location.hash = '#/log') !== ''")
	p.wait("document.querySelectorAll('tr[data-row]').length > 10")
	var n object
	f.set(func() { n = f.line(1001, time.Now(), added) })
	f.push("lines", object{"lines": []object{n}, "left": 0})
	p.wait("document.querySelector('tr[data-row]').textContent.includes('new.example.org')")

	p.click("#pause")
	f.set(func() {
		n = f.line(1002, time.Now(), use{"shop", "app=x", "x-0", "paused.example.org", "192.0.2.98", 443, "allowed", 1, 0, "", "", ""})
	})
	f.push("lines", object{"lines": []object{n}, "left": 0})
	p.shows("#count", "Paused: there are new lines")
	p.hides("tr[data-row]", "paused.example.org")
	p.click("#pause")
	p.shows("tr[data-row]", "paused.example.org")

	// With filters, only new lines that pass are shown.
	eval[bool](p, "(location.hash = '#/log?verdict=denied') !== ''")
	p.hides("tr[data-row]", "paused.example.org")
	p.shows("tr[data-row]", "new.example.org")
	f.set(func() {
		f.line(1003, time.Now(), use{"shop", "app=x", "x-0", "other.example.org", "192.0.2.98", 443, "allowed", 1, 0, "", "", ""})
		n = f.line(1004, time.Now(), use{"shop", "app=x", "x-0", "late.example.org", "192.0.2.98", 443, "denied", 1, 0, "", "", "unmatched"})
	})
	f.push("lines", object{"lines": f.lines[len(f.lines)-2:], "left": 0})
	p.shows("tr[data-row]", "late.example.org")
	p.hides("tr[data-row]", "other.example.org")
}

// TestLinesNotSent: lines that the stream leaves out are asked for, and none is missing in between.
func TestLinesNotSent(t *testing.T) {
	f := newFake(t)
	f.line(1, time.Now(), shoppingEdges[0])
	p := open(t, f.URL, "#/log", desk)
	p.shows("#count", "1 line")
	f.set(func() {
		for i := range 600 {
			f.line(i+2, time.Now(), shoppingEdges[1])
		}
	})
	f.push("lines", object{"lines": f.lines[len(f.lines)-200:], "left": 400})
	for _, want := range []int{200, 400, 600, 601} {
		p.wait("document.querySelectorAll('tr[data-row]').length === %d", want)
		if want < 601 {
			p.click("#older")
		}
	}
}

// TestAgents: an agent that is slow, goes and comes back is said on each view.
func TestAgents(t *testing.T) {
	f, p := shown(t, "#/traffic", desk)
	p.shows(".state", "live, 3 of 3 agents")
	change := func(state, message string) {
		f.set(func() {
			f.agents[1] = object{"node": "node-2", "state": state, "message": message, "problems": []object{}}
		})
		f.push("agents", object{"agents": f.agents})
	}
	change("slow", "no answer for 10 s")
	p.shows(".notice", "node-2 is slow: its lines are missing here")
	p.shows(".state", "live, 2 of 3 agents")
	change("unreachable", "no agent answers at 192.0.2.2:9954")
	p.shows(".notice", "node-2 is unreachable")
	p.click(".notice a")
	p.shows(".card.wrong", "no agent answers at 192.0.2.2:9954")
	change("well", "")
	p.shows("#count", "3 agents, nothing wrong")
	p.wait("document.querySelector('.notice') === null")
}

// TestServerEnds: the page says that namegate ui ended, keeps the last state, and goes on when it is there again.
func TestServerEnds(t *testing.T) {
	f, p := shown(t, "#/traffic", desk)
	p.shows("ul.to .row", "cdn.example.org")
	f.away.Store(true)
	f.CloseClientConnections()
	p.shows(".notice", "namegate ui does not answer")
	p.shows("ul.to .row", "cdn.example.org")
	f.away.Store(false)
	p.wait("document.querySelector('.notice') === null")
}

// TestTabInBackground: a tab in the background has no connection, which browsers have few of, and
// catches up when it is visible again.
func TestTabInBackground(t *testing.T) {
	f, p := shown(t, "#/log", desk)
	p.shows("tr[data-row]", "telemetry.vendor.test")
	hide := func(is bool) {
		eval[bool](p, fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, value: %t }) && document.dispatchEvent(new Event("visibilitychange"))`, is))
	}
	streams := func(want int) {
		t.Helper()
		fatal.Await(t, fmt.Sprintf("%d open streams", want), func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.pages) == want
		})
	}
	streams(1)
	hide(true)
	streams(0)
	f.set(func() {
		f.line(1001, time.Now(), use{"shop", "app=x", "x-0", "missed.example.org", "192.0.2.98", 443, "allowed", 1, 0, "", "", ""})
	})
	p.hides("tr[data-row]", "missed.example.org")
	if p.count(".notice") > 0 {
		t.Error("the page complains about the connection that it gave back")
	}
	hide(false)
	streams(1)
	p.shows("tr[data-row]", "missed.example.org")
}

// TestSlowAnswer: a panel is there before its answers.
func TestSlowAnswer(t *testing.T) {
	f := newFake(t)
	f.shopping(time.Now())
	f.slow = make(chan struct{})
	p := open(t, f.URL, "#/log", desk)
	p.click("tr[data-row]")
	p.shows("#panel [role=status]", "Asking the agent…")
	p.shows("#panel", "Workload")
	close(f.slow)
	p.shows("#explained", "What to do")
}
