package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// asked returns the lines that an agent answers with.
func askedFor(t *testing.T, a client.Agent, query string) string {
	t.Helper()
	q, err := url.ParseQuery(query)
	fatal.If(t, err)
	resp, err := a.Ask(context.Background(), console.AuditPath, q)
	fatal.If(t, err, query)
	body, err := io.ReadAll(resp.Body)
	fatal.If(t, err)
	return string(body)
}

// TestAuditFilter: exactly the selected lines are returned, unchanged.
func TestAuditFilter(t *testing.T) {
	all := []string{
		consoletest.Line(0, "shop/cart-7d9f", "allowed"), consoletest.Line(1, "shop/cart-7d9f", "denied"), consoletest.Line(2, "shop/front-1", "unmatched"),
		consoletest.Line(3, "pay/cart-7d9f", "would-deny"), consoletest.Line(4, "pay/cart-7d9f", "failed"), "{broken\n", `{"v":1,"kind":"weather"}` + "\n",
	}
	w := consoletest.New("node-1")
	w.Recent = []byte(strings.Join(all, ""))
	for query, want := range map[string][]int{
		"":                                        {0, 1, 2, 3, 4, 6},
		"namespace=shop":                          {0, 1, 2},
		"pod=cart-7d9f":                           {0, 1, 3, 4},
		"pod=pay/cart-7d9f":                       {3, 4},
		"namespace=pay&pod=cart-7d9f":             {3, 4},
		"verdict=denied,would-deny":               {1, 3},
		"verdict=denied&verdict=failed":           {1, 4},
		"kind=flow":                               {1, 3},
		"kind=dns&verdict=denied":                 {},
		"since=2026-05-01T12:00:03Z":              {3, 4},
		"since=2026-05-01T12:00:03%2B02:00":       {0, 1, 2, 3, 4},
		"namespace=shop&kind=dns&verdict=allowed": {0},
	} {
		var lines string
		for _, i := range want {
			lines += all[i]
		}
		diff.Error(t, lines, askedFor(t, w.Agent("", serve.Everything{}), query), query)
	}
}

// TestAuditSince: a flow that was counted on since counts.
func TestAuditSince(t *testing.T) {
	counted := strings.Replace(consoletest.Line(0, "shop/cart-7d9f", "denied"), `"count":1`, `"count":9,"last":"2026-05-01T12:00:50Z"`, 1)
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.Line(0, "shop/cart-7d9f", "denied") + counted)
	diff.Error(t, counted, askedFor(t, w.Agent("", serve.Everything{}), "since=2026-05-01T12:00:30Z"))
	// A count of connections is written up to a minute after them, behind lines of later times.
	late := consoletest.Line(10, "shop/front-1", "denied")
	played := consoletest.NewTape(consoletest.Batch{Lines: late})
	close(played.Batches)
	w.Follow = func() serve.Follower { return played }
	diff.Error(t, counted+late, askedFor(t, w.Agent("", serve.Everything{}), "follow=1&since=2026-05-01T12:00:30Z"), "followed")
}

// TestFollow: recent and new lines, each once, and the number of lost ones.
func TestFollow(t *testing.T) {
	var l [6]string
	for i := range l {
		l[i] = consoletest.Line(i, "shop/cart-7d9f", "allowed")
	}
	lost := `{"v":1,"kind":"lost","count":7}` + "\n"
	for what, c := range map[string]struct {
		recent  string
		batches []consoletest.Batch
		want    string
	}{
		"nothing was":        {"", []consoletest.Batch{{Lines: l[0] + l[1]}, {Lines: l[2]}}, l[0] + l[1] + l[2]},
		"behind each other":  {l[0] + l[1], []consoletest.Batch{{Lines: l[2]}, {Lines: l[3]}}, l[0] + l[1] + l[2] + l[3]},
		"some of it is lost": {l[0], []consoletest.Batch{{Lines: l[1], Lost: 7}, {Lines: l[2]}}, l[0] + l[1] + lost + l[2]},
		"filtered":           {consoletest.Line(0, "pay/x", "allowed"), []consoletest.Batch{{Lines: consoletest.Line(1, "pay/x", "allowed") + l[2]}}, l[2]},
	} {
		w := consoletest.New("node-1")
		w.Recent = []byte(c.recent)
		played := consoletest.NewTape(c.batches...)
		close(played.Batches)
		w.Follow = func() serve.Follower { return played }
		diff.Error(t, c.want, askedFor(t, w.Agent("", consoletest.Some{"shop"}), "follow=1&namespace=shop"), what)
		select {
		case <-played.Over:
		default:
			t.Errorf("%s: the follower is not closed", what)
		}
	}
}

// once sees namespaces for a given number of questions.
type once struct{ left *int }

func (o once) May(_ context.Context, r serve.Right) (bool, error) {
	if r != serve.RowsOf(r.Namespace) {
		return false, nil
	}
	*o.left--
	if *o.left < -1 {
		return false, errors.New("the API server is away")
	}
	return *o.left >= 0, nil
}

func (once) Name() string { return "somebody" }

// TestRightsEnd: a stream ends when its viewer may not see it any more.
func TestRightsEnd(t *testing.T) {
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.Line(0, "shop/cart-7d9f", "allowed"))
	played := consoletest.NewTape(consoletest.Batch{Lines: consoletest.Line(1, "shop/cart-7d9f", "allowed")}, consoletest.Batch{Lines: consoletest.Line(2, "shop/cart-7d9f", "allowed")})
	w.Follow = func() serve.Follower { return played }
	left := 3 // the question itself, and two batches
	got := askedFor(t, w.Agent("", once{&left}), "follow=1&namespace=shop")
	diff.Equal(t, consoletest.Line(0, "shop/cart-7d9f", "allowed")+consoletest.Line(1, "shop/cart-7d9f", "allowed"), got)
}

// TestStreamIsPrompt: over a real connection a line arrives while the stream continues.
func TestStreamIsPrompt(t *testing.T) {
	w := consoletest.New("node-1")
	played := consoletest.NewTape()
	w.Follow = func() serve.Follower { return played }
	server := httptest.NewServer(w.Handler(serve.Everything{}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + console.AuditPath + "?follow=1")
	if err != nil {
		t.Fatal(err) // the answer begins before there is a line
	}
	for i := range 3 {
		want := consoletest.Line(i, "shop/a", "allowed")
		played.Batches <- consoletest.Batch{Lines: want}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Fatalf("%v: %s", err, got)
		}
	}
	resp.Body.Close()
	<-played.Over // the server notices that the follower is gone
}

// TestLinesOfNodes: lines of the node are for callers who may get the cluster kind, whatever
// namespaces they see.
func TestLinesOfNodes(t *testing.T) {
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.HostLine)
	for query, shown := range map[string]bool{"": true, "verdict=would-deny": true, "verdict=denied": false, "namespace=shop": false} {
		if got := askedFor(t, w.Agent("", consoletest.Administrator), query); (got == consoletest.HostLine) != shown {
			t.Errorf("who may get the cluster kind asks for %q: %q", query, got)
		}
		diff.Equal(t, "", askedFor(t, w.Agent("", consoletest.Some{"", "shop", "standard"}), query), "who may not asks for", query)
	}
}

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
