package web

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/console"
)

// guard lets pass the requests of the caller's own browser. Other users of the machine do not know
// the token; pages of other sites have neither the cookie nor the name of the host, and cannot read
// answers.
func guard(next http.Handler, port uint16, token string) http.Handler {
	hosts := []string{netip.AddrPortFrom(loopback4, port).String(), netip.AddrPortFrom(loopback6, port).String()}
	is := func(given string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		site := r.Header.Get("Sec-Fetch-Site") // of browsers; of another port of the host it is same-site
		switch {
		case !slices.Contains(hosts, r.Host):
			refuse(w, console.Refuse(http.StatusMisdirectedRequest, "the page is at %s alone; open the address that `namegate ui` printed", hosts[0]))
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			refuse(w, console.Refuse(http.StatusMethodNotAllowed, "the page only reads: GET is the only method, not %s", r.Method))
		case r.URL.Path == "/" && is(r.URL.Query().Get("token")):
			http.SetCookie(w, &http.Cookie{Name: cookieOf(port), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, "/", http.StatusSeeOther) // the token leaves the browser's address bar
		case site == "cross-site" || site == "same-site":
			refuse(w, console.Refuse(http.StatusForbidden, "another site asks for the page; open the address that `namegate ui` printed"))
		case !hasCookie(r, cookieOf(port), is):
			refuse(w, console.Refuse(http.StatusUnauthorized, "the token is missing or of an earlier start; open the address that `namegate ui` printed"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// hasCookie tells whether a request has the cookie.
func hasCookie(r *http.Request, name string, is func(string) bool) bool {
	return slices.ContainsFunc(r.CookiesNamed(name), func(c *http.Cookie) bool { return is(c.Value) })
}
