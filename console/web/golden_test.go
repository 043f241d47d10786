package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
	"github.com/namegate/namegate/testkit/webtest"
)

// TestAnswersGolden: what the page is told, for an administrator, for a tenant of one namespace and for an unprivileged user.
func TestAnswersGolden(t *testing.T) {
	w := consoletest.New("node-1")
	w.Status = consoletest.Busy()
	w.AddClusterPolicies("198.51.100.0/33")
	w.Recent = append(w.Recent, consoletest.Line(4, "pay/cart-7d9f", "unmatched")+consoletest.Line(5, "shop/front-1", "would-deny")+consoletest.HostLine...)
	paths := []string{
		"session", "lines", "lines?verdict=denied&limit=1", "grants", "grants?node=node-1", "status", "policies",
		"explain?pod=shop/cart-7d9f&target=x.paste.test&port=443", "explain?pod=pay/cart-7d9f&target=bank.test", "explain?node=node-1&target=mirror.test&port=80",
		"suggest?namespace=shop", "suggest?workload=Node/node-1", "weather",
	}
	for name, c := range map[string]struct {
		viewer    serve.Viewer
		namespace string
	}{"administrator": {consoletest.Administrator, ""}, "tenant": {consoletest.Tenant, "shop"}, "unprivileged": {consoletest.Unprivileged, "shop"}} {
		synctest.Test(t, func(t *testing.T) {
			find := func(context.Context) ([]client.Agent, error) {
				return []client.Agent{&webtest.Streaming{Name: "node-1", Handler: w.Handler(c.viewer)}}, nil
			}
			o := openWith(t, &Options{
				Context: "kind", Namespace: c.namespace, Version: "v1", Agents: find, Now: consoletest.Clock, After: time.After,
				About: func(ctx context.Context, subject string) ([]client.Agent, url.Values, error) {
					agents, err := find(ctx)
					return agents, about(subject), err
				},
				Guard: func(fqdn.Name, netip.Addr) string { return "" },
			})
			var all bytes.Buffer
			agents, err := json.MarshalIndent(o.feed.agents(), "", " ")
			fatal.If(t, err)
			fmt.Fprintf(&all, "%s %s\n", eventAgents, agents)
			for _, path := range paths {
				r := httptest.NewRecorder()
				o.handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/api/"+path, nil))
				fmt.Fprintf(&all, "GET /api/%s\n%d ", path, r.Code)
				fatal.If(t, json.Indent(&all, r.Body.Bytes(), "", " "))
				all.WriteString("\n")
			}
			golden.Compare(t, name, all.String())
		})
	}
}
