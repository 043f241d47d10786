package web

import (
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/console"
)

// guard serves the page's files to all clients of the machine, and answers of /api/ to clients with the
// token, which other users of the machine do not know. The token is not a cookie: browsers would
// send a cookie to every port of the host, and so to programs of other users.
func guard(api, files http.Handler, port uint16, token string) http.Handler {
	hosts := []string{netip.AddrPortFrom(loopback4, port).String(), netip.AddrPortFrom(loopback6, port).String()}
	mux := http.NewServeMux()
	mux.Handle("/", files)
	mux.Handle("/api/", authorised(api, token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !slices.Contains(hosts, r.Host):
			refuse(w, console.Refuse(http.StatusMisdirectedRequest, "the page is at %s alone; open the address that `namegate ui` printed", hosts[0]))
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			refuse(w, console.Refuse(http.StatusMethodNotAllowed, "the page only reads: GET is the only method, not %s", r.Method))
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// authorised lets pass requests with the token that are not from other sites.
func authorised(next http.Handler, token string) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site") // of browsers; of another port of the host it is same-site
		switch {
		case site == "cross-site" || site == "same-site":
			refuse(w, console.Refuse(http.StatusForbidden, "another site asks for the page; open the address that `namegate ui` printed"))
		case subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, console.Refuse(http.StatusUnauthorized, "the token is missing or of an earlier start; open the address that `namegate ui` printed"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}
