package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/console/web"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/webtest"
	"sigs.k8s.io/yaml"
)

const base = `
metadata: {name: base, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  egress:
  - matches: [{name: www.example.org}, {pattern: "*.cdn.test"}]
    ports: [{protocol: TCP, port: 443}]
`

// nodeOf is a node with a pod of shop and one of pay.
func nodeOf(t *testing.T, number byte) *webtest.Node {
	t.Helper()
	in := compile.Input{Policies: []*v1alpha1.FQDNNetworkPolicy{{}}}
	if err := yaml.UnmarshalStrict([]byte(base), in.Policies[0]); err != nil {
		t.Fatal(err)
	}
	for i, namespace := range []string{"shop", "pay"} {
		in.Pods = append(in.Pods, policy.Pod{
			PodRef: policy.PodRef{Namespace: namespace, Name: fmt.Sprintf("cart-%d", number)}, Labels: map[string]string{"app": "cart"},
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, number, byte(10 + i)})},
		})
	}
	n := webtest.NewNode(fmt.Sprintf("node-%d", number), in, time.Now)
	name, err := fqdn.ParseName("www.example.org")
	if err != nil {
		t.Fatal(err)
	}
	var grants []policy.GrantInfo
	for i := range in.Pods {
		grants = append(grants, policy.GrantInfo{
			Pod: in.Pods[i].PodRef, Addr: netip.MustParseAddr("192.0.2.10"), Ports: "tcp/443", Name: name, Until: time.Now().Add(5 * time.Minute), By: "shop/base www.example.org",
		})
	}
	n.SetGrants(grants...)
	return n
}

// asked is a decision about the pod of a namespace.
func asked(namespace, name, verdict string) audit.Line {
	return audit.Line{
		Kind: audit.KindDNS, Time: time.Now(), Verdict: verdict, Protocol: "udp", Rcode: "NOERROR",
		Pod:      audit.LinePod{Namespace: namespace, Name: "cart-1", Workload: "app=cart", IP: "10.1.1.10"},
		Question: &audit.LineQuestion{Name: name, Type: "A", Class: "IN"},
		Matches:  []audit.LineMatch{{Policy: "shop/base", Path: "spec.egress[0].matches[0]", Match: "www.example.org"}},
	}
}

// dialled is a denied connection of the pod of a namespace.
func dialled(namespace, name string) audit.Line {
	return audit.Line{
		Kind: audit.KindFlow, Time: time.Now(), Verdict: "denied", Protocol: "tcp",
		Pod:         audit.LinePod{Namespace: namespace, Name: "cart-1", Workload: "app=cart", IP: "10.1.1.10"},
		Destination: &audit.LineDestination{Address: "203.0.113.5", Port: 443}, Names: []audit.LineName{{Name: name, Asked: time.Now()}},
		Reason: audit.ReasonUnmatched, Policies: []string{"shop/base"}, Count: 1,
	}
}

// servePage starts the server of namegate ui for agents, and returns its address with the token.
func servePage(t *testing.T, viewer serve.Viewer, namespace string, nodes ...*webtest.Node) string {
	t.Helper()
	find := func(context.Context) (out []client.Agent, err error) {
		for _, n := range nodes {
			out = append(out, n.Agent(viewer))
		}
		return out, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- web.Serve(ctx, web.Options{
			Context: "kind", Namespace: namespace, Version: "v1", Agents: find, Now: time.Now, After: time.After,
			Guard: func(fqdn.Name, netip.Addr) string { return "" },
			About: func(ctx context.Context, subject string) ([]client.Agent, url.Values, error) {
				agents, err := find(ctx)
				q := url.Values{"pod": {subject}}
				if node, is := strings.CutPrefix(subject, "node/"); is {
					q = url.Values{"node": {node}}
				}
				return agents, q, err
			},
		}, 0, func(address string) { ready <- address })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case address := <-ready:
		return address
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return ""
	}
}

// openAddress shows the page at an address as namegate ui prints it.
func openAddress(t *testing.T, address string) *tab {
	t.Helper()
	server, fragment, _ := strings.Cut(address, "/#")
	return open(t, server, "#"+fragment, desk)
}

// show goes to a view.
func (p *tab) show(fragment string) {
	p.t.Helper()
	eval[bool](p, "(location.hash = "+quoted(fragment)+") !== ''")
}

// TestRealServer: the page and the server of namegate ui together.
func TestRealServer(t *testing.T) {
	one, two := nodeOf(t, 1), nodeOf(t, 2)
	one.Log(asked("shop", "www.example.org", "allowed"), dialled("shop", "other.test"), asked("pay", "bank.test", "allowed"))
	p := openAddress(t, servePage(t, serve.Everything{}, "", one, two))
	p.shows(".state", "live, 2 of 2 agents")
	p.shows("ul.from .row", "shop", "pay", "cart")
	p.shows("ul.to .row", "www.example.org", "other.test", "bank.test")
	one.Log(asked("shop", "new.test", "failed"))
	p.shows("ul.to .row", "new.test")
	p.click(`[data-row="w:shop/app=cart"]`)
	p.shows("#panel .edge", "denied other.test")
	p.shows("#suggested", "name: other.test")
	p.click("#panel .edge")
	p.shows("#panel-title", "shop/cart-1 to other.test:443")
	p.shows("#explained", "no match of the pod's policies covers the name", "What to do")
	p.shows("#panel .yaml", "name: allow-other.test")

	p.show("#/log?verdict=denied")
	p.shows("tr[data-row]", "other.test:443")
	p.hides("tr[data-row]", "www.example.org")
	one.Log(dialled("pay", "late.test"), asked("pay", "fine.test", "allowed"))
	p.shows("tr[data-row]", "late.test:443")
	p.hides("tr[data-row]", "fine.test")

	p.show("#/grants?namespace=shop")
	p.shows("#count", "2 open grants")
	p.shows("tr[data-row]", "shop/cart-1 www.example.org 192.0.2.10 tcp/443 4m")

	p.show("#/policies")
	p.shows(".card", "shop/base FQDNNetworkPolicy")
	p.shows(".card tr.unused", "*.cdn.test unused")

	one.SetStatus(func(s *console.Status) { s.Failing = "apply chains: the kernel is full" })
	two.Stop()
	p.show("#/nodes")
	p.shows(".card.wrong", "no agent answers at 192.0.2.2:9954")
	two.Start()
	p.hides(".card", "no agent answers")
}

// TestRealRights: a reader of one namespace sees that one alone.
func TestRealRights(t *testing.T) {
	one := nodeOf(t, 1)
	one.Log(asked("pay", "secret.test", "allowed"), dialled("pay", "secret.test"), asked("shop", "www.example.org", "allowed"))
	p := openAddress(t, servePage(t, consoletest.Tenant, "shop", one))
	p.shows("#only", "namespace shop")
	p.shows("ul.to .row", "www.example.org")
	for _, v := range []struct{ fragment, shown string }{
		{"#/log", "www.example.org"}, {"#/grants", "shop/cart-1"}, {"#/policies", "shop/base"}, {"#/nodes", "node-1"}, {"#/traffic", "www.example.org"},
	} {
		p.show(v.fragment)
		p.shows("main", v.shown)
		p.hides("#page", "secret.test")
		p.hides("#page", "pay/")
	}
}

// TestRealSlowAgent: an agent that answers nothing delays no other.
func TestRealSlowAgent(t *testing.T) {
	one, two := nodeOf(t, 1), nodeOf(t, 2)
	two.Hang()
	p := openAddress(t, servePage(t, serve.Everything{}, "", one, two))
	one.Log(asked("shop", "www.example.org", "allowed"))
	p.shows("ul.to .row", "www.example.org")
	p.shows(".notice", "node-2 is slow")
	two.Answer()
	p.wait("document.querySelector('.notice') === null")
}

// TestRealToken: the token is in no address after the page has it, holds for reloads, bookmarks and
// other tabs, and goes to the page's own port alone.
func TestRealToken(t *testing.T) {
	one := nodeOf(t, 1)
	one.Log(asked("shop", "www.example.org", "allowed"), dialled("shop", "other.test"))
	address := servePage(t, serve.Everything{}, "", one)
	server, token, _ := strings.Cut(address, "/#/?token=")
	without := open(t, server, "", desk)
	without.shows("[role=alert]", "open the address that `namegate ui` printed")

	p := openAddress(t, address)
	p.shows("ul.to .row", "www.example.org")
	if got := eval[string](p, "location.href"); got != server+"/#/traffic" {
		t.Errorf("the address bar has %s", got)
	}
	p.do(chromedp.Reload())
	p.shows("ul.to .row", "www.example.org")
	bookmarked := open(t, server, "#/log?verdict=denied", desk)
	bookmarked.shows("tr[data-row]", "other.test:443")
	bookmarked.hides("tr[data-row]", "www.example.org")

	// A link with a wrong token takes the right one from no tab.
	open(t, server, "#/?token=wrong", desk).shows("[role=alert]", "the token is missing or of an earlier start")
	open(t, server, "#/log", desk).shows("tr[data-row]", "other.test:443")

	// Another user's program on another port.
	seen := make(chan http.Header, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	t.Cleanup(other.Close)
	open(t, other.URL, "", desk)
	if head := fmt.Sprint(<-seen); strings.Contains(head, token) || strings.Contains(head, "Cookie") {
		t.Errorf("another port gets %s", head)
	}
	if got := eval[string](p, "document.cookie"); got != "" {
		t.Errorf("the page has the cookie %s", got)
	}
}

// TestRealTokenInOpenTab: the printed address of another start is opened in a tab that shows the page.
func TestRealTokenInOpenTab(t *testing.T) {
	one := nodeOf(t, 1)
	one.Log(asked("shop", "www.example.org", "allowed"))
	address := servePage(t, serve.Everything{}, "", one)
	server, fragment, _ := strings.Cut(address, "/#")
	p := open(t, server, "", desk)
	p.shows("[role=alert]", "open the address that `namegate ui` printed")
	p.show("#" + fragment)
	p.shows("ul.to .row", "www.example.org")
	p.wait("location.hash === '#/traffic'")
}
