package web

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/e2e/fatal"
)

// TestGuard: which requests are answered.
func TestGuard(t *testing.T) {
	h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("in")) }), 9955, "secret")
	const host = "127.0.0.1:9955"
	for what, c := range map[string]struct {
		method, path, host, cookie, site string
		want                             int
	}{
		"the cookie":                  {"GET", "/api/lines", host, "namegate-9955=secret", "same-origin", 200},
		"the cookie, on IPv6":         {"GET", "/", "[::1]:9955", "namegate-9955=secret", "none", 200},
		"no browser":                  {"GET", "/", host, "namegate-9955=secret", "", 200},
		"the token":                   {"GET", "/?token=secret", host, "", "cross-site", 303},
		"no cookie":                   {"GET", "/api/lines", host, "", "same-origin", 401},
		"the page without a cookie":   {"GET", "/", host, "", "none", 401},
		"a wrong token":               {"GET", "/?token=secreT", host, "", "none", 401},
		"an empty token":              {"GET", "/?token=", host, "", "none", 401},
		"the token elsewhere":         {"GET", "/api/lines?token=secret", host, "", "none", 401},
		"a wrong cookie":              {"GET", "/", host, "namegate-9955=", "none", 401},
		"the cookie of another port":  {"GET", "/", host, "namegate-9956=secret", "none", 401},
		"a name of the attacker's":    {"GET", "/api/lines", "rebound.test:9955", "namegate-9955=secret", "same-origin", 421},
		"localhost":                   {"GET", "/", "localhost:9955", "namegate-9955=secret", "none", 421},
		"another port":                {"GET", "/", "127.0.0.1:9956", "namegate-9955=secret", "none", 421},
		"no host, with the token":     {"GET", "/?token=secret", "", "", "none", 421},
		"another site":                {"GET", "/api/lines", host, "namegate-9955=secret", "cross-site", 403},
		"another port of the machine": {"GET", "/api/lines", host, "namegate-9955=secret", "same-site", 403},
		"another method":              {"POST", "/api/lines", host, "namegate-9955=secret", "same-origin", 405},
		"HEAD":                        {"HEAD", "/", host, "namegate-9955=secret", "same-origin", 405},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = c.host
		for key, value := range map[string]string{"Cookie": c.cookie, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || (w.Body.String() == "in") != (c.want == 200) {
			t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, c.want)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self';") {
			t.Errorf("%s: %q", what, csp)
		}
		if set := w.Header().Get("Set-Cookie"); (set != "") != (c.want == 303) || set != "" && (!strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict")) {
			t.Errorf("%s: the cookie is set: %q", what, set)
		}
	}
}

// TestServe: the printed address opens the page, for a browser with cookies alone, on loopback alone.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	address, ended := make(chan string, 1), make(chan error, 1)
	c := &cluster{viewer: console.Everything{}}
	go func() {
		ended <- Serve(ctx, Options{Version: "v1", Agents: c.find, About: c.about, Now: time.Now, After: time.After}, 0, func(a string) { address <- a })
	}()
	at, err := url.Parse(<-address)
	fatal.If(t, err)
	if host, err := netip.ParseAddrPort(at.Host); err != nil || host.Addr() != loopback4 || len(at.Query().Get("token")) < 26 {
		t.Errorf("the address is %s", at)
	}
	jar, err := cookiejar.New(nil)
	fatal.If(t, err)
	browser := &http.Client{Jar: jar}
	read := func(client *http.Client, at string) (int, string, http.Header) {
		t.Helper()
		resp, err := client.Get(at)
		fatal.If(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		fatal.If(t, err)
		return resp.StatusCode, string(text), resp.Header
	}
	status, text, head := read(browser, at.String())
	if status != 200 || !strings.Contains(text, "<!doctype html>") || head.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the page: %d %v\n%s", status, head, text)
	}
	root := "http://" + at.Host
	if status, text, _ := read(browser, root+"/api/session"); status != 200 || !strings.Contains(text, `"version":"v1"`) {
		t.Errorf("the session: %d %s", status, text)
	}
	if status, text, _ := read(browser, root+"/api/nothing"); status != 404 || !strings.Contains(text, `{"message":"there is no /api/nothing;`) {
		t.Errorf("an unknown question: %d %s", status, text)
	}
	if status, _, _ := read(http.DefaultClient, root+"/"); status != 401 {
		t.Errorf("without the cookie: %d", status)
	}
	resp, err := browser.Get(root + "/api/events") // a stream that is open does not keep the server
	fatal.If(t, err)
	defer resp.Body.Close()
	if _, err := listen(mustPort(t, at)); err == nil || !strings.Contains(err.Error(), "--port names another port") {
		t.Errorf("a port that is taken: %v", err)
	}
	stop()
	fatal.If(t, <-ended)
}

func mustPort(t *testing.T, at *url.URL) uint16 {
	t.Helper()
	host, err := netip.ParseAddrPort(at.Host)
	fatal.If(t, err)
	return host.Port()
}
