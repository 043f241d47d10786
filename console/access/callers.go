package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/namegate/namegate/console"
)

const (
	// reviewTime bounds one question to the API server.
	reviewTime = 5 * time.Second
	// cacheTTL is when an answer of the API server counts no more: so long a right
	// that was taken away is still there. The API server's own webhooks have 10 s and more.
	cacheTTL = 10 * time.Second
	keptFor  = cacheTTL - time.Nanosecond // the cache's last moment is one of counting
	// maxCached bounds the answers that are kept, of each kind.
	maxCached = 1024
	// allAuthenticated is the group that the API server puts every known user into.
	allAuthenticated = "system:authenticated"
)

// user is the caller, as the API server knows it.
type user struct {
	authenticationv1.UserInfo
	// key tells users apart that may see different things.
	key [sha256.Size]byte
	// until is when the credentials are checked again.
	until time.Time
}

// judged is the result of checking a token or a certificate.
type judged struct {
	user user
	why  string // it is refused
}

// clock is the time of a cache.
type clock func() time.Time

// Now returns it.
func (c clock) Now() time.Time { return c() }

// callers identifies the callers of requests.
type callers struct {
	client    kubernetes.Interface
	log       *slog.Logger
	now       func() time.Time
	authority *authority
	known     *cache.LRUExpireCache // judged, by digests of credentials
	throttle  *throttle
	turns     *lru.Cache[string, *semaphore.Weighted] // by users' names
}

// who returns the caller of a request: by its client certificate if that is valid, else
// by its token, as the API server does. The error is a *console.Refusal.
func (c *callers) who(r *http.Request) (user, error) {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return user{}, console.Refuse(http.StatusBadRequest, "agents refuse impersonation; leave --as and impersonation out, or use that user's own credentials")
		}
	}
	var certs []*x509.Certificate
	if r.TLS != nil {
		certs = r.TLS.PeerCertificates
	}
	token, given := bearer(r.Header)
	switch {
	case len(certs) > 0:
		u, err := c.byCertificate(r, certs)
		if err == nil || !given {
			return u, err
		}
		return c.byToken(r, token)
	case given:
		return c.byToken(r, token)
	}
	return user{}, console.Refuse(http.StatusUnauthorized, "agents answer no request without credentials: use a kubeconfig with a token or a client certificate")
}

// bearer returns the token of a request.
func bearer(h http.Header) (token string, given bool) {
	kind, token, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(kind, "Bearer") && token != ""
}

func (c *callers) byCertificate(r *http.Request, certs []*x509.Certificate) (user, error) {
	sum := sha256.New()
	sum.Write([]byte("certificates\x00"))
	for _, cert := range certs {
		sum.Write(cert.Raw)
	}
	return c.judge(r, [sha256.Size]byte(sum.Sum(nil)), func() (judged, error) {
		switch err := c.authority.verify(certs, c.now()); {
		case errors.Is(err, errNoAuthority):
			return judged{}, console.Refuse(http.StatusServiceUnavailable, "%v: it has not reached the API server; try again, or use a token", err)
		case err != nil:
			return judged{why: fmt.Sprintf("%v; use the credentials that kubectl uses for this cluster", err)}, nil
		}
		subject := certs[0].Subject
		groups := slices.Clone(subject.Organization)
		if !slices.Contains(groups, allAuthenticated) {
			groups = append(groups, allAuthenticated)
		}
		return judged{user: user{UserInfo: authenticationv1.UserInfo{Username: subject.CommonName, Groups: groups}}}, nil
	})
}

func (c *callers) byToken(r *http.Request, token string) (user, error) {
	return c.judge(r, sha256.Sum256([]byte("token\x00"+token)), func() (judged, error) {
		j, err := c.review(r.Context(), token)
		if err != nil {
			return j, c.away(r.Context(), "who asks", err)
		}
		if j.why != "" {
			j.why = fmt.Sprintf("the API server does not know this token (%s); log in again", j.why)
		}
		return j, nil
	})
}

// judge returns the cached result of checking credentials, or else checks them.
// Certificates are cached too: finding the issuer among a hundred means trying all of
// them.
func (c *callers) judge(r *http.Request, key [sha256.Size]byte, find func() (judged, error)) (user, error) {
	known, _ := c.known.Get(key)
	j, ok := known.(judged)
	if !ok {
		if !c.throttle.take(callerOf(r)) {
			return user{}, console.Refuse(http.StatusTooManyRequests, "too many callers that the agent has not seen of late; try again in a second")
		}
		var err error
		if j, err = find(); err != nil {
			return user{}, err
		}
		j.user.key, j.user.until = key, c.now().Add(cacheTTL)
		c.known.Add(key, j, keptFor)
	}
	if j.why != "" {
		return user{}, console.Refuse(http.StatusUnauthorized, "%s", j.why)
	}
	return j.user, nil
}

// review asks the API server whose a token is.
func (c *callers) review(ctx context.Context, token string) (judged, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	got, err := c.client.AuthenticationV1().TokenReviews().Create(ctx, ask, metav1.CreateOptions{})
	if err != nil {
		return judged{}, err
	}
	s := got.Status
	if !s.Authenticated || s.User.Username == "" {
		if s.Error == "" {
			s.Error = "it belongs to no user"
		}
		return judged{why: s.Error}, nil
	}
	return judged{user: user{UserInfo: s.User}}, nil
}

// away is the reply while the API server does not answer the agent.
func (c *callers) away(ctx context.Context, what string, err error) error {
	if ctx.Err() == nil {
		c.log.Warn("the API server does not say "+what, "error", err)
	}
	return console.Refuse(http.StatusServiceUnavailable, "the agent cannot ask the API server %s; try again, or run namegate as root on the node", what)
}

// callerOf returns the caller of a request.
func callerOf(r *http.Request) netip.Addr {
	p, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr()
}
