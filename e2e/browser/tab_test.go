package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a state of the page is waited for.
const patience = time.Minute

// browser is shared by the tests; each has a tab of its own.
var browser = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // Chromium's sandbox does not run as root
		chromedp.Flag("force-prefers-reduced-motion", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("font-render-hinting", "none"))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	return ctx, chromedp.Do(ctx)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if ctx, err := browser(); err == nil {
		_ = chromedp.Cancel(ctx)
	}
	os.Exit(code)
}

// tab is a page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu     sync.Mutex
	broken []string // errors of scripts, requests to elsewhere
}

// look is what the reader's screen and system are.
type look struct {
	width, height int64
	dark          bool
}

var desk = look{width: 1360, height: 860}

// open shows the page of a server at a fragment such as "#/log". The test fails for each error of a
// script, each breach of the content security policy, and each request to another server.
func open(t *testing.T, server, fragment string, l look) *tab {
	t.Helper()
	parent, err := browser()
	if err != nil {
		t.Fatalf("chromium does not start; `make test-nightly` installs it, Debian's package is chromium: %v", err)
	}
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, url: server + "/" + fragment}
	if err := chromedp.Listen(ctx, p.watch(server)); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	p.do(chromedp.EmulateViewport(l.width, l.height), chromedp.Navigate(p.url))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, b := range p.broken {
			t.Errorf("the page: %s", b)
		}
	})
	return p
}

func (p *tab) watch(server string) func(any) {
	return func(e any) {
		var broken string
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			broken = thrown(e.ExceptionDetails)
		case *log.EventEntryAdded:
			// Answers that tests want to fail are no errors of the page.
			if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
				broken = e.Entry.Text
			}
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, server+"/") {
				broken = "request to " + e.Request.URL
			}
		}
		if broken != "" {
			p.mu.Lock()
			p.broken = append(p.broken, broken)
			p.mu.Unlock()
		}
	}
}

func thrown(d *runtime.ExceptionDetails) string {
	if d.Exception != nil {
		return d.Text + ": " + d.Exception.Description
	}
	return d.Text
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// run is the value of an action.
func run[T any](p *tab, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

// call sends a command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

// navigated is the error of an expression whose page is replaced by the next one meanwhile.
const navigated = "Inspected target navigated or closed"

// eval is the value of a JavaScript expression, on the next page where the tab is on its way to one.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	action := chromedp.Evaluate[string]("(async () => JSON.stringify((await ("+expression+")) ?? null))()", chromedp.EvalAwaitPromise)
	ctx, cancel := context.WithTimeout(p.ctx, 2*patience)
	defer cancel()
	text, err := chromedp.Run(ctx, action)
	for err != nil && strings.Contains(err.Error(), navigated) {
		text, err = chromedp.Run(ctx, action)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		p.t.Fatalf("%s: %s: %v", expression, text, err)
	}
	return value
}

// wait returns when an expression is true.
func (p *tab) wait(format string, args ...any) {
	p.t.Helper()
	expression := fmt.Sprintf(format, args...)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if eval[bool](p, "Boolean("+expression+")") {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("not true: %s\nthe page says:\n%s", expression, eval[string](p, "document.body.innerText"))
		}
	}
}

// shows waits for texts in the elements of a selector, in lower or upper case.
func (p *tab) shows(selector string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.wait("[...document.querySelectorAll(%s)].some((e) => e.innerText.replace(/\\s+/g, ' ').includes(%s))", quoted(selector), quoted(text))
	}
}

// hides waits until no element of a selector has a text.
func (p *tab) hides(selector, text string) {
	p.t.Helper()
	p.wait("![...document.querySelectorAll(%s)].some((e) => e.innerText.replace(/\\s+/g, ' ').includes(%s))", quoted(selector), quoted(text))
}

func quoted(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}

// press sends keys to the element with the focus.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.do(chromedp.KeyEvent(k))
	}
}

// slash presses the key as a keyboard does: its character is not typed if the page takes the key.
func (p *tab) slash() {
	p.t.Helper()
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"})
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash"})
}

const (
	enter, escape, tabulator = kb.Enter, kb.Escape, kb.Tab
	up, down, left, right    = kb.ArrowUp, kb.ArrowDown, kb.ArrowLeft, kb.ArrowRight
	home, end                = kb.Home, kb.End
)

// click waits for the first element of a selector and clicks it.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.wait("document.querySelector(%s)", quoted(selector))
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// focused is the key of the row that has the focus, or else the id of the element.
func (p *tab) focused() string {
	p.t.Helper()
	return eval[string](p, "document.activeElement.dataset.row ?? document.activeElement.id")
}

// count is how many elements a selector has.
func (p *tab) count(selector string) int {
	p.t.Helper()
	return eval[int](p, "document.querySelectorAll("+quoted(selector)+").length")
}

// screenshots is the folder of pictures.
const screenshots = "../../bin/screenshots"

// picture writes bin/screenshots/NAME.png.
func (p *tab) picture(name string) {
	p.t.Helper()
	p.pictureIn(screenshots, name)
}

// pictureIn writes NAME.png in a folder.
func (p *tab) pictureIn(folder, name string) {
	p.t.Helper()
	image := run(p, chromedp.CaptureScreenshot())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), image, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
