package serve_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestComplete: an answer says for how long it is complete for its namespace, and its lines
// stay as they are.
func TestComplete(t *testing.T) {
	w := consoletest.New("node-1")
	text := consoletest.Line(0, "shop/cart-7d9f", "allowed")
	w.Recent = []byte(text)
	w.Complete = map[string]time.Duration{"": 90*time.Second + 999*time.Millisecond, "shop": 3 * time.Hour, "bank": 0}
	for query, want := range map[string]time.Duration{
		"": 90 * time.Second, "namespace=shop": 3 * time.Hour, "pod=shop/cart-7d9f": 3 * time.Hour, "namespace=bank": 0, "namespace=pay": -1,
	} {
		q, err := url.ParseQuery(query)
		fatal.If(t, err)
		resp, err := w.Agent("", serve.Everything{}).Ask(t.Context(), console.AuditPath, q)
		fatal.If(t, err)
		if got, known := client.Complete(resp); known != (want >= 0) || known && got != want {
			t.Errorf("%q: complete for %v, known %v, want %v", query, got, known, want)
		}
		if lines := askedFor(t, w.Agent("", serve.Everything{}), query); lines != text && strings.Contains(query, "shop") {
			t.Errorf("%q: lines %q", query, lines)
		}
	}
}

// TestCompleteOfOtherAgents: an agent that does not say it, or says what is no time, is not complete.
func TestCompleteOfOtherAgents(t *testing.T) {
	for _, value := range []string{"", "-1", "soon", "1.5", "99999999999999999999", "4294967296"} {
		resp := &http.Response{Header: http.Header{}}
		if value != "" {
			resp.Header.Set("Namegate-Complete-Seconds", value)
		}
		if d, known := client.Complete(resp); known {
			t.Errorf("%q: complete for %v", value, d)
		}
	}
	if _, known := client.Complete(&http.Response{}); known {
		t.Error("an answer without headers is complete")
	}
}
