package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
)

// TestAnswersGolden: what the page is told, for an administrator, for a tenant of one namespace and for an unprivileged user.
func TestAnswersGolden(t *testing.T) {
	w := consoletest.New("node-1")
	w.Status = consoletest.Busy()
	w.AddClusterPolicies("198.51.100.0/33")
	w.Recent = append(w.Recent, consoletest.Line(4, "pay/cart-7d9f", "unmatched")+consoletest.Line(5, "shop/front-1", "would-deny")+consoletest.HostLine...)
	paths := []string{
		"session", "agents", "lines", "lines?verdict=denied&limit=1", "pods", "pods?pod=shop/batch", "grants", "grants?node=node-1", "status", "policies",
		"explain?pod=shop/cart-7d9f&target=x.paste.test&port=443", "explain?pod=pay/cart-7d9f&target=bank.test", "explain?node=node-1&target=mirror.test&port=80",
		"suggest?namespace=shop", "suggest?workload=Node/node-1", "weather",
	}
	for name, c := range map[string]struct {
		viewer    serve.Viewer
		namespace string
	}{"administrator": {consoletest.Administrator, ""}, "tenant": {consoletest.Tenant, "shop"}, "unprivileged": {consoletest.Unprivileged, "shop"}} {
		synctest.Test(t, func(t *testing.T) {
			find := func(context.Context) ([]client.Agent, error) {
				return []client.Agent{hanging{w.Agent("node-1", c.viewer)}}, nil
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
			for _, path := range paths {
				r := httptest.NewRecorder()
				o.handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/api/"+path, nil))
				fmt.Fprintf(&all, "GET /api/%s\n%d ", path, r.Code)
				fatal.If(t, json.Indent(&all, r.Body.Bytes(), "", " "))
				all.WriteString("\n")
			}
			consoletest.Golden(t, name, all.String())
		})
	}
}

// hanging is an agent whose answers with new lines end with their context, as those of a listener do.
type hanging struct{ *consoletest.Agent }

func (h hanging) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if !query.Has("follow") {
		return h.Agent.Ask(ctx, path, query)
	}
	query.Del("follow")
	resp, err := h.Agent.Ask(ctx, path, query)
	if err == nil {
		resp.Body = endless{resp.Body, ctx}
	}
	return resp, err
}

type endless struct {
	io.ReadCloser
	ctx context.Context
}

// Read waits at the end.
func (e endless) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err == io.EOF {
		<-e.ctx.Done()
	}
	return n, err
}
