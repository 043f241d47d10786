package cli

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// TestCommandsGolden: the output of each command, with its warnings and exit code, for an administrator, for a
// tenant of one namespace and for an unprivileged user.
func TestCommandsGolden(t *testing.T) {
	w := consoletest.New("node-1")
	w.Status = consoletest.Busy()
	w.AddClusterPolicies("198.51.100.0/33")
	w.Recent = append(w.Recent, consoletest.Line(4, "pay/cart-7d9f", "unmatched")+consoletest.Line(5, "shop/front-1", "would-deny")+consoletest.HostLine...)
	var commands []string
	for _, scope := range []string{"", " -n shop", " -n pay"} {
		for _, command := range []string{"pods", "grants", "audit"} {
			for _, format := range []string{"", " -o wide", " -o json", " -o yaml"} {
				commands = append(commands, command+scope+format)
			}
		}
		commands = append(commands, "suggest"+scope, "suggest -o json"+scope, "audit --verdict denied --kind flow"+scope)
	}
	for _, pod := range []string{"shop/cart-7d9f", "shop/front-1", "shop/batch", "shop/logs", "shop/far", "shop/done", "shop/none", "pay/cart-7d9f", "node/node-1"} {
		commands = append(commands, "pods "+pod, "grants "+pod)
		for _, to := range []string{
			"www.example.org:443", "x.paste.test:443", "registry.test", "203.0.113.5:443", "203.0.113.7:443", "203.0.113.6:443",
			"10.96.0.20:5432", "db-admin.shop.svc.cluster.local:80", "10.2.0.30:80", "192.0.2.1/icmp",
		} {
			commands = append(commands, "explain "+pod+" "+to, "explain -o yaml "+pod+" "+to)
		}
	}
	for _, from := range []string{"pay/ledger-0", "pay/none", "db-0", "none", "10.2.0.30", "node/node-1", "node/node-2", "a/b/c"} {
		commands = append(commands, "explain shop/cart-7d9f 8080 --from "+from)
	}
	commands = append(commands, "explain shop/cart-7d9f http --from db-0", "explain shop/cart-7d9f 80 90 --from db-0", "explain node/node-1 --from db-0", "explain -o yaml shop/far icmp --from db-0")
	commands = append(commands, "status", "status -o wide", "status -o json", "suggest --cluster --min-namespaces 1", "suggest --nodes", "audit --pod shop/cart-7d9f")
	for name, viewer := range map[string]consoletest.Some{"administrator": consoletest.Administrator, "tenant": consoletest.Tenant, "unprivileged": consoletest.Unprivileged} {
		socket := filepath.Join(t.TempDir(), "agent.sock")
		l, err := net.Listen("unix", socket)
		fatal.If(t, err)
		s := &http.Server{Handler: w.Handler(viewer)}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		var all bytes.Buffer
		for _, c := range commands {
			cmd := root("v1", asking{now: consoletest.Clock})
			out, errs, code := ran(t, cmd, append(strings.Fields(c), "--socket", socket)...)
			fmt.Fprintf(&all, "$ namegate %s\n%s", c, out)
			for line := range strings.Lines(errs) {
				fmt.Fprintf(&all, "# %s", line)
			}
			fmt.Fprintf(&all, "# exit code %d\n\n", code)
		}
		golden.Compare(t, name, all.String())
	}
}
