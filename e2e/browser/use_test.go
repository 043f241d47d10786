package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

func TestFiltersInURL(t *testing.T) {
	_, p := shown(t, "#/traffic", desk)
	p.shows("#count", "9 workloads, 20 names")
	p.slash()
	if got := p.focused(); got != "filter-name" {
		t.Fatalf("/ focuses %q", got)
	}
	p.press("telemetry")
	p.wait("location.hash === '#/traffic?name=telemetry'")
	p.shows("#count", "1 workload, 1 name")
	p.do(chromedp.Reload())
	p.shows("#count", "1 workload, 1 name")
	p.wait("document.querySelector('#filter-name').value === 'telemetry'")
	// Filters go along to the other views.
	p.click("nav a:nth-child(2)")
	p.wait("location.hash === '#/log?name=telemetry'")
	p.shows("tr[data-row]", "telemetry.vendor.test")
	p.hides("tr[data-row]", "cdn.example.org")
	p.click("#clear")
	p.wait("location.hash === '#/log'")
	p.shows("tr[data-row]", "cdn.example.org")
	// A verdict of the legend is a filter, and Back leads to the view before.
	p.do(chromedp.NavigateBack())
	p.wait("location.hash.startsWith('#/traffic')")
	p.click("#clear")
	p.click("#verdict-denied")
	p.wait("location.hash === '#/traffic?verdict=denied'")
	p.shows("#count", "2 workloads, 3 names")
	for fragment, want := range map[string]string{
		"#/traffic?namespace=pay":                           "2 workloads, 5 names",
		"#/traffic?workload=tier%3Dfront":                   "1 workload, 3 names",
		"#/traffic?policy=ci%2Frunners":                     "1 workload, 3 names",
		"#/traffic?namespace=shop&verdict=would-deny":       "1 workload, 1 name",
		"#/traffic?namespace=ci&name=nothing.has.this.name": "0 workloads, 0 names",
	} {
		eval[bool](p, "(location.hash = "+quoted(fragment)+") !== ''")
		p.shows("#count", want)
	}
	eval[bool](p, "(location.hash = '#/grants?pod=ledger') !== ''")
	p.shows("#count", "2 open grants")
	eval[bool](p, "(location.hash = '#/policies?namespace=ci') !== ''")
	p.shows("#count", "1 policy, 1 unused match")
}

// TestOneNamespace: a reader of one namespace sees which, and has no filter for others.
func TestOneNamespace(t *testing.T) {
	f := newFake(t)
	f.session["namespace"] = "shop"
	p := open(t, f.URL, "#/log", desk)
	p.shows("#only", "namespace shop")
	p.wait("document.querySelector('#filter-name') && !document.querySelector('#filter-namespace')")
}

func TestKeyboard(t *testing.T) {
	_, p := shown(t, "#/log", desk)
	p.wait("document.querySelectorAll('tr[data-row]').length > 20")
	// From the head: the link to the content, five views, the filters, Pause, and one row of the table.
	if n := eval[int](p, `[...document.querySelectorAll("a, button, input, select, tr")].filter((e) => e.tabIndex >= 0 && e.closest("tbody")).length`); n != 1 {
		t.Errorf("%d elements of the table are in the tab order, want 1", n)
	}
	p.press(tabulator)
	p.wait("document.activeElement.className === 'skip'")
	for range 5 + 5 + 1 {
		p.press(tabulator)
	}
	if got := p.focused(); got != "pause" {
		t.Fatalf("after 11 more tabs: %q", got)
	}
	p.press(tabulator)
	rows := eval[[]string](p, "[...document.querySelectorAll('tr[data-row]')].map((r) => r.dataset.row)")
	at := func(want string) {
		t.Helper()
		if got := p.focused(); got != want {
			t.Fatalf("the focus is at %q, want %q", got, want)
		}
	}
	at(rows[0])
	p.press(down, down, up)
	at(rows[1])
	p.press(end)
	at(rows[len(rows)-1])
	p.press(home, down)
	p.press(enter)
	p.wait("document.activeElement.id === 'panel-title'")
	p.press(escape)
	p.wait("!document.querySelector('#panel')")
	at(rows[1])
	p.slash()
	at("filter-name")
	p.slash() // is a character there
	p.wait("document.querySelector('#filter-name').value === '/'")
}

func TestKeyboardOfTheTraffic(t *testing.T) {
	_, p := shown(t, "#/traffic", desk)
	p.shows("ul.to .row", "cdn.example.org")
	eval[bool](p, "document.querySelector('ul.from .row').focus() ?? true")
	p.press(down, down)
	p.wait("document.activeElement.dataset.row === 'w:shop/app=cart'")
	p.wait("document.querySelectorAll('.lines .near').length === 4") // its lines are emphasised
	p.press(right)
	p.wait("document.activeElement.dataset.side === 'right'")
	p.press(left)
	p.wait("document.activeElement.dataset.row === 'w:shop/app=cart'")
	p.press(enter)
	p.shows("#panel-title", "app=cart in shop")
	p.press(escape)
	p.wait("!document.querySelector('#panel') && document.activeElement.dataset.row === 'w:shop/app=cart'")
	p.press(up, up)
	p.press(enter)
	p.wait("document.activeElement.getAttribute('aria-expanded') === 'false'")
}

// TestNames: each control has a name for screen readers, and each id is there once.
func TestNames(t *testing.T) {
	for _, fragment := range []string{"#/traffic", "#/log", "#/grants", "#/policies", "#/nodes"} {
		_, p := shown(t, fragment, desk)
		p.wait("document.querySelector('[data-row]')")
		if fragment != "#/policies" && fragment != "#/nodes" {
			p.click("tr[data-row], ul.to [data-row]")
			p.wait("document.querySelector('#panel')")
		}
		if got := eval[[]string](p, `[...document.querySelectorAll("button, a, input, select, svg:not([aria-hidden])")].filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).map((e) => e.outerHTML)`); len(got) > 0 {
			t.Errorf("%s: no name: %v", fragment, got)
		}
		if got := eval[[]string](p, `[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)`); len(got) > 0 {
			t.Errorf("%s: ids that are there twice: %v", fragment, got)
		}
	}
}

// TestContrast: text has a contrast of at least 4.5 to its ground, in light and dark.
func TestContrast(t *testing.T) {
	for _, l := range []look{desk, {desk.width, desk.height, true}} {
		for _, fragment := range []string{"#/traffic?verdict=denied", "#/log?name=e", "#/grants", "#/policies", "#/nodes"} {
			f, p := shown(t, fragment, l)
			f.set(func() {
				f.agents[0] = object{"node": "node-1", "state": "unreachable", "message": "no agent answers", "problems": []object{{"what": "failing", "message": "the kernel is full"}}}
			})
			f.push("agents", object{"agents": f.agents})
			p.shows("nav .count", "1")
			p.wait("document.querySelector('main [data-row]')")
			for _, bad := range eval[[]string](p, contrast) {
				t.Errorf("%s dark=%v: %s", fragment, l.dark, bad)
			}
		}
	}
}

// contrast lists texts whose contrast is below that of WCAG 2 AA: relative luminances as defined there.
const contrast = `(() => {
	const numbers = (c) => c.match(/[\d.]+/g).map(Number);
	const luminance = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if ((c[3] ?? 1) === 1) return c; } return [255, 255, 255]; };
	const bad = new Set();
	const walk = document.createTreeWalker(document.querySelector("#page"), NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest(".unseen, .skip, datalist, noscript")) continue;
		const [a, b] = [luminance(numbers(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) bad.add(walk.currentNode.data.trim().slice(0, 30) + ": " + ratio.toFixed(2) + " in " + e.className + " of " + e.parentElement.className);
	}
	return [...bad];
})()`
