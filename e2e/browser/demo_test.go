package browser

import (
	"bufio"
	"bytes"
	"flag"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// pictures is a flag: `make pictures` writes those of the documents anew.
var pictures = flag.String("pictures", screenshots, "folder for the pictures of the demo")

// demo runs the demo as `make demo KEEP=1` does, until the test ends, and returns the page's address
// after the tour.
func demo(t *testing.T) string {
	t.Helper()
	bin := t.TempDir() + "/"
	if said, err := exec.Command("go", "-C", "../..", "build", "-o", bin, "./cmd/namegate", "./e2e/demo").CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v: %s", err, said)
	}
	// The node has the machine's name, which differs between pictures of two machines.
	cmd := exec.Command("unshare", "--uts", "sh", "-c", `hostname node-1; exec "$@"`, "demo", bin+"demo", "-keep", "-agent", bin+"namegate", "-examples", "../../examples")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("run the demo: %v", err)
	}
	var tour strings.Builder
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		for lines.Scan() {
			tour.WriteString(lines.Text() + "\n")
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the demo: %v: %s\n%s", err, said.String(), tour.String())
		}
	})
	for lines.Scan() {
		tour.WriteString(lines.Text() + "\n")
		if address := strings.TrimSpace(lines.Text()); strings.HasPrefix(address, "http://127.0.0.1:") {
			return address
		}
	}
	t.Fatal("the demo prints no address of the page")
	return ""
}

// TestDemo: the page of the demo shows the demo's packets. The pictures of the documents are these.
func TestDemo(t *testing.T) {
	p := openAddress(t, demo(t))
	picture := func(name string, height int64) {
		p.do(chromedp.EmulateViewport(desk.width, height))
		p.pictureIn(*pictures, name)
	}
	p.shows(".state", "live, 1 of 1 agent")
	p.shows("ul.from .row", "client egress=listed", "neighbour egress=listed")
	p.shows("ul.to .row", "www.example.org", "docs.example.org", "feed.example.com", "other.test", "203.0.113.99")
	p.shows(`[data-row="n:other.test"] .mark`, "denied")
	p.shows(`[data-row="n:203.0.113.99"] .mark`, "denied")
	picture("ui-traffic", 430)

	p.show("#/log")
	const denied = `[...document.querySelectorAll("tr[data-row]")].find((r) => r.innerText.includes("denied") && r.innerText.includes("other.test:80"))`
	p.wait(denied)
	eval[bool](p, denied+".click() ?? true")
	p.shows("#panel-title", "shop/client to other.test:80")
	p.shows("#explained", "no match of the pod's policies covers the name", "What to do")
	p.shows("#panel .yaml", "name: allow-other.test")
	p.shows("#suggested", "name: other.test")
	picture("ui-log", desk.height)

	p.show("#/policies")
	p.shows(".card", "shop/allow-web FQDNNetworkPolicy Enforce selects 2 pods", "shop/allow-feed FQDNNetworkPolicy Enforce selects 1 pod")
	p.wait("document.querySelectorAll('.card tr.unused').length === 0")
	picture("ui-policies", 420)
}
