package web

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/webtest"
)

// TestGuard: which requests are answered.
func TestGuard(t *testing.T) {
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	h := guard(says("api"), says("file"), 9955, "secret")
	const host, right = "127.0.0.1:9955", "Bearer secret"
	for what, c := range map[string]struct {
		method, path, host, authorization, site string
		want                                    int
	}{
		"the token":                         {"GET", "/api/lines", host, right, "same-origin", 200},
		"the token, on IPv6":                {"GET", "/api/lines", "[::1]:9955", right, "same-origin", 200},
		"no browser":                        {"GET", "/api/lines", host, right, "", 200},
		"the page":                          {"GET", "/", host, "", "none", 200},
		"the page, by a link":               {"GET", "/", host, "", "cross-site", 200},
		"a file":                            {"GET", "/js/main.js", host, "", "same-origin", 200},
		"no token":                          {"GET", "/api/lines", host, "", "same-origin", 401},
		"an encoded path without the token": {"GET", "/%61pi/lines", host, "", "same-origin", 401},
		"a wrong token":                     {"GET", "/api/lines", host, "Bearer secreT", "same-origin", 401},
		"an empty token":                    {"GET", "/api/lines", host, "Bearer ", "same-origin", 401},
		"the token as a password":           {"GET", "/api/lines", host, "Basic secret", "same-origin", 401},
		"the token in the address":          {"GET", "/api/lines?token=secret", host, "", "none", 401},
		"a name of the attacker's":          {"GET", "/api/lines", "rebound.test:9955", right, "same-origin", 421},
		"the page by such a name":           {"GET", "/", "rebound.test:9955", "", "none", 421},
		"localhost":                         {"GET", "/", "localhost:9955", "", "none", 421},
		"another port":                      {"GET", "/api/lines", "127.0.0.1:9956", right, "none", 421},
		"no host":                           {"GET", "/api/lines", "", right, "none", 421},
		"another site":                      {"GET", "/api/lines", host, right, "cross-site", 403},
		"another port of the machine":       {"GET", "/api/lines", host, right, "same-site", 403},
		"another method":                    {"POST", "/api/lines", host, right, "same-origin", 405},
		"another method for the page":       {"POST", "/", host, "", "same-origin", 405},
		"HEAD":                              {"HEAD", "/api/lines", host, right, "same-origin", 405},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = c.host
		for key, value := range map[string]string{"Authorization": c.authorization, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		in := w.Body.String() == "api" || w.Body.String() == "file"
		if w.Code != c.want || in != (c.want == 200) {
			t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, c.want)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self';") {
			t.Errorf("%s: %q", what, csp)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge == "Bearer") != (c.want == 401) {
			t.Errorf("%s: the challenge is %q", what, challenge)
		}
	}
}

// TestServe: the printed address gives the page, and its token the answers, on loopback alone. No
// answer sets a cookie: it would be sent to every port of the machine.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	printed, ended := make(chan string, 1), make(chan error, 1)
	c := &cluster{viewer: serve.Everything{}}
	go func() {
		ended <- Serve(ctx, Options{Version: "v1", Agents: c.find, About: c.about, Now: time.Now, After: time.After}, 0, func(a string) { printed <- a })
	}()
	address := <-printed
	at, err := url.Parse(address)
	fatal.If(t, err)
	host, err := netip.ParseAddrPort(at.Host)
	if _, token, _ := strings.Cut(at.Fragment, "token="); err != nil || host.Addr() != loopback4 || len(token) < 26 || at.RawQuery != "" {
		t.Errorf("the address is %s", address)
	}
	read := func(resp *http.Response, err error) (int, string, http.Header) {
		t.Helper()
		fatal.If(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		fatal.If(t, err)
		diff.Empty(t, resp.Header.Values("Set-Cookie"), resp.Request.URL, "cookies")
		return resp.StatusCode, string(text), resp.Header
	}
	status, text, head := read(http.Get(address))
	if status != 200 || !strings.Contains(text, "<!doctype html>") || head.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the page: %d %v\n%s", status, head, text)
	}
	if status, text, _ := read(webtest.Get(ctx, http.DefaultClient, address, "/api/session")); status != 200 || !strings.Contains(text, `"version":"v1"`) {
		t.Errorf("the session: %d %s", status, text)
	}
	if status, text, _ := read(webtest.Get(ctx, http.DefaultClient, address, "/api/nothing")); status != 404 || !strings.Contains(text, `{"error":"there is no /api/nothing;`) {
		t.Errorf("an unknown question: %d %s", status, text)
	}
	if status, _, _ := read(http.Get("http://" + at.Host + "/api/session")); status != 401 {
		t.Errorf("without the token: %d", status)
	}
	resp, err := webtest.Get(context.Background(), http.DefaultClient, address, "/api/events") // a stream that is open does not keep the server
	fatal.If(t, err)
	defer resp.Body.Close()
	if _, err := listen(host.Port()); err == nil || !strings.Contains(err.Error(), "--port names another port") {
		t.Errorf("a port that is taken: %v", err)
	}
	stop()
	fatal.If(t, <-ended)
}
