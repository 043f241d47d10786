package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/testclock"
)

// question is a request with credentials.
func question(token string, certs ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/pods", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// TestCallers: known callers, and the replies to others.
func TestCallers(t *testing.T) {
	ours, theirs := accesstest.NewCA(t), accesstest.NewCA(t)
	signed := func(by *accesstest.CA, change func(*x509.Certificate)) []*x509.Certificate {
		text, _ := by.Issue(t, change)
		return []*x509.Certificate{accesstest.Parsed(t, text)}
	}
	server := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	over := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	nameless := func(c *x509.Certificate) { c.Subject = pkix.Name{Organization: []string{"builders"}} }
	for _, c := range []struct {
		name   string
		token  string
		certs  []*x509.Certificate
		header map[string]string
		before func(*Server, *accesstest.API)
		want   string // the user
		status int
		text   string
	}{
		{name: "a token", token: "alice's", want: "alice"},
		{name: "a token in other words", header: map[string]string{"Authorization": "bearer  alice's "}, want: "alice"},
		{name: "a certificate", certs: signed(ours, nil), want: "carol"},
		{name: "both", token: "alice's", certs: signed(ours, nil), want: "carol"},
		{name: "a bad certificate and a token", token: "alice's", certs: signed(theirs, nil), want: "alice"},
		{name: "nothing", status: 401, text: "no request without credentials"},
		{name: "a password", header: map[string]string{"Authorization": "Basic YTpi"}, status: 401, text: "no request without credentials"},
		{name: "no word", header: map[string]string{"Authorization": "Bearer "}, status: 401, text: "no request without credentials"},
		{name: "an unknown token", token: "guess", status: 401, text: "log in again"},
		{name: "another's certificate", certs: signed(theirs, nil), status: 401, text: "not one of this cluster"},
		{name: "an old certificate", certs: signed(ours, over), status: 401, text: "not one of this cluster"},
		{name: "a server's certificate", certs: signed(ours, server), status: 401, text: "not one of this cluster"},
		{name: "a certificate without a user", certs: signed(ours, nameless), status: 401, text: "names no user"},
		{name: "in another's name", token: "alice's", header: map[string]string{"Impersonate-User": "root"}, status: 400, text: "refuse impersonation"},
		{name: "in another group", token: "alice's", header: map[string]string{"impersonate-group": "system:masters"}, status: 400, text: "refuse impersonation"},
		{name: "without the API server", token: "alice's", before: func(_ *Server, a *accesstest.API) { a.Leave() }, status: 503, text: "cannot ask the API server who asks"},
		{name: "a certificate before the authority is known", certs: signed(ours, nil), before: func(s *Server, _ *accesstest.API) { s.callers.authority.pool.Store(nil) }, status: 503, text: "does not know yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := accesstest.NewAPI(accesstest.ClientCA(ours.PEM()))
			api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}}
			s := newServer(t, api, nil)
			fatal.If(t, s.callers.authority.read(t.Context()))
			if c.before != nil {
				c.before(s, api)
			}
			r := question(c.token, c.certs...)
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			v, err := s.Viewer(r)
			if c.status != 0 {
				if statusOf(err) != c.status || !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %d %v, want %d %s", statusOf(err), err, c.status, c.text)
				}
				return
			}
			fatal.If(t, err)
			diff.Equal(t, c.want, v.(*Viewer).Name(), "the caller")
		})
	}
}

// TestTokenIsRemembered: good and bad, for ten seconds; an error is not.
func TestTokenIsRemembered(t *testing.T) {
	api, c := accesstest.NewAPI(), testclock.New(time.Now())
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	s := newServer(t, api, c.Now)
	ask := func(token string, status int) {
		t.Helper()
		if _, err := s.Viewer(question(token)); statusOf(err) != status {
			t.Fatalf("%s: %d, want %d: %v", token, statusOf(err), status, err)
		}
	}
	for range 30 {
		ask("alice's", 0)
		ask("guess", 401)
	}
	diff.Equal(t, 2, api.Reviews, "reviews of two tokens")
	api.Mu.Lock()
	delete(api.Tokens, "alice's")
	api.Mu.Unlock()
	ask("alice's", 0)
	c.Pass(cacheTTL)
	ask("alice's", 401)
	// An API server that is away is not an answer: nothing of it is remembered.
	api.Leave()
	ask("other", 503)
	api.Come()
	ask("other", 401)
}

// TestGuesses: a caller that tries tokens is stopped before the API server is overloaded,
// without affecting other or known callers.
func TestGuesses(t *testing.T) {
	api, c := accesstest.NewAPI(), testclock.New(time.Now())
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	s := newServer(t, api, c.Now)
	from := func(address, token string) error {
		r := question(token)
		r.RemoteAddr = address
		_, err := s.Viewer(r)
		return err
	}
	fatal.If(t, from("192.0.2.1:1", "alice's"))
	refused := 0
	for i := range 1000 {
		if statusOf(from("192.0.2.1:2", fmt.Sprint("guess", i))) == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused != 1000-reviewRate.burst+1 || api.Reviews != reviewRate.burst {
		t.Errorf("%d guesses refused, %d reviews", refused, api.Reviews)
	}
	if err := from("192.0.2.1:1", "alice's"); err != nil {
		t.Errorf("the known caller: %v", err)
	}
	if err := from("192.0.2.2:1", "x"); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("another caller: %v", err)
	}
}

// TestSees: the review asks for the policies of the namespace, with the caller's full
// identity, and its result is cached for ten seconds.
func TestSees(t *testing.T) {
	api, c := accesstest.NewAPI(), testclock.New(time.Now())
	api.Tokens["alice's"] = authenticationv1.UserInfo{
		Username: "alice", UID: "7", Groups: []string{"shoppers"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
	}
	api.Tokens["bob's"] = authenticationv1.UserInfo{Username: "bob"}
	api.Tokens["root's"] = authenticationv1.UserInfo{Username: "root"}
	api.Rights["alice"], api.Rights["root"] = []string{"shop"}, []string{""}
	s := newServer(t, api, c.Now)
	sees := func(token, namespace string) bool {
		t.Helper()
		v, err := s.Viewer(question(token))
		fatal.If(t, err)
		yes, err := v.May(t.Context(), serve.RowsOf(namespace))
		fatal.If(t, err)
		return yes
	}
	for range 3 {
		if !sees("alice's", "shop") || sees("alice's", "bank") || sees("alice's", "") || sees("bob's", "shop") {
			t.Fatal("wrong rights")
		}
	}
	diff.Equal(t, 4, len(api.Asked), "reviews of four questions")
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"shoppers"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "get", Group: "namegate.io", Resource: "fqdnnetworkpolicies"},
	}
	diff.Error(t, want, api.Asked[0], "the review")
	// A caller who sees everything needs no review for each namespace.
	api.Asked = nil
	for _, ns := range []string{"", "shop", "bank"} {
		if !sees("root's", ns) {
			t.Errorf("root does not see %q", ns)
		}
	}
	diff.Equal(t, 1, len(api.Asked), "reviews of one who sees all")
	// A right that is gone is gone ten seconds later.
	api.Rights["alice"] = nil
	if !sees("alice's", "shop") {
		t.Error("not remembered")
	}
	c.Pass(cacheTTL)
	if sees("alice's", "shop") {
		t.Error("a right that is gone is still there")
	}
}

// TestCredentialsEnd: a follower of the log is disconnected soon after its token, or
// certificate, is no longer valid.
func TestCredentialsEnd(t *testing.T) {
	ours := accesstest.NewCA(t)
	api, c := accesstest.NewAPI(accesstest.ClientCA(ours.PEM())), testclock.New(time.Now())
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"], api.Rights["carol"], api.Rights["mallory"] = []string{"shop"}, []string{"shop"}, []string{"shop"}
	s := newServer(t, api, c.Now)
	fatal.If(t, s.callers.authority.read(t.Context()))
	text, _ := ours.Issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Minute) })
	token, err := s.Viewer(question("alice's"))
	fatal.If(t, err)
	certificate, err := s.Viewer(question("", accesstest.Parsed(t, text)))
	fatal.If(t, err)
	sees := func(v serve.Viewer, want bool, status int) {
		t.Helper()
		if yes, err := v.May(t.Context(), serve.RowsOf("shop")); yes != want || statusOf(err) != status {
			t.Errorf("sees %v %v, want %v %d", yes, err, want, status)
		}
	}
	for range 5 {
		sees(token, true, 0)
		sees(certificate, true, 0)
		c.Pass(cacheTTL)
	}
	api.Mu.Lock()
	delete(api.Tokens, "alice's")
	api.Mu.Unlock()
	c.Pass(time.Minute)
	sees(token, false, 401)
	sees(certificate, false, 401) // a minute has passed
	api.Mu.Lock()
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "mallory"}
	api.Mu.Unlock()
	c.Pass(cacheTTL)
	sees(token, false, 401)
}

// TestSeesCluster: the right to read a kind of cluster policies is asked for by itself: the
// right to see all namespaces is not it, nor is another kind's.
func TestSeesCluster(t *testing.T) {
	api, c := accesstest.NewAPI(), testclock.New(time.Now())
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"] = []string{""}
	s := newServer(t, api, c.Now)
	v, err := s.Viewer(question("alice's"))
	fatal.If(t, err)
	if yes, err := v.May(t.Context(), serve.RowsOf("")); !yes || err != nil {
		t.Fatal(yes, err)
	}
	sees := func(id string, want bool) {
		t.Helper()
		yes, err := v.May(t.Context(), serve.ClusterPolicies(id))
		if fatal.If(t, err); yes != want {
			t.Errorf("kind of %q: %v", id, yes)
		}
	}
	for range 3 {
		sees("", false)
		sees(cnp.ID(""), false)
		sees(nnp.ID(""), false)
	}
	c.Pass(cacheTTL)
	api.Rights["alice"] = []string{"clusternetworkpolicies"}
	sees("", false)
	sees(cnp.ID(""), true)
	sees(nnp.ID(""), false)
	want := [][2]string{{"namegate.io", "fqdnnetworkpolicies"}, {"namegate.io", "clusterfqdnnetworkpolicies"}, {"policy.networking.k8s.io", "clusternetworkpolicies"}, {"namegate.io", "nodenetworkpolicies"}}
	want = append(want, want[1:]...)
	var got [][2]string
	for _, a := range api.Asked {
		if a.ResourceAttributes.Verb != "get" || a.ResourceAttributes.Namespace != "" {
			t.Errorf("%+v", a.ResourceAttributes)
		}
		got = append(got, [2]string{a.ResourceAttributes.Group, a.ResourceAttributes.Resource})
	}
	diff.Error(t, want, got)
}

// TestSeesNothingWithoutAnAnswer: a review that fails shows nothing and says why.
func TestSeesNothingWithoutAnAnswer(t *testing.T) {
	api := accesstest.NewAPI()
	api.Tokens["alice's"] = authenticationv1.UserInfo{Username: "alice"}
	api.Rights["alice"] = []string{"shop"}
	s := newServer(t, api, nil)
	v, err := s.Viewer(question("alice's"))
	fatal.If(t, err)
	api.Leave()
	if yes, err := v.May(t.Context(), serve.RowsOf("shop")); yes || statusOf(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "what alice may see") {
		t.Errorf("without an answer: %v %v", yes, err)
	}
	api.Come()
	if yes, err := v.May(t.Context(), serve.RowsOf("shop")); !yes || err != nil {
		t.Errorf("when it is back: %v %v", yes, err)
	}
}

// TestAuthority: an unreadable authority changes nothing; a cluster without client
// certificates knows no caller by one.
func TestAuthority(t *testing.T) {
	ours := accesstest.NewCA(t)
	text, _ := ours.Issue(t, nil)
	certs := []*x509.Certificate{accesstest.Parsed(t, text)}
	api := accesstest.NewAPI()
	a := &authority{client: api, log: silent}
	if a.read(t.Context()) == nil || a.pool.Load() != nil {
		t.Error("read what is not there")
	}
	fatal.If(t, api.Tracker().Add(accesstest.ClientCA(ours.PEM())))
	fatal.If(t, a.read(t.Context()))
	fatal.If(t, a.verify(certs, time.Now()))
	fatal.If(t, api.Tracker().Update(authorityResource, accesstest.ClientCA("no PEM"), authorityNamespace))
	if a.read(t.Context()) == nil {
		t.Error("nonsense is taken")
	}
	fatal.If(t, a.verify(certs, time.Now()))
	fatal.If(t, api.Tracker().Update(authorityResource, accesstest.ClientCA(""), authorityNamespace))
	fatal.If(t, a.read(t.Context()))
	if a.verify(certs, time.Now()) == nil {
		t.Error("a certificate is good where the cluster has none")
	}
}

var authorityResource = corev1.SchemeGroupVersion.WithResource("configmaps")

// TestCertificate: every server has a key of its own, which the fingerprint is of.
func TestCertificate(t *testing.T) {
	now := time.Now()
	one, pin, err := newCertificate(now)
	fatal.If(t, err)
	two, other, err := newCertificate(now)
	fatal.If(t, err)
	if pin == other || one.Leaf.SerialNumber.Cmp(two.Leaf.SerialNumber) == 0 {
		t.Error("two servers have the same key")
	}
	if err := one.Leaf.CheckSignatureFrom(one.Leaf); err == nil {
		t.Error("an agent's certificate can sign others") // it is no authority
	}
	if one.Leaf.NotBefore.After(now) || one.Leaf.NotAfter.Before(now.AddDate(5, 0, 0)) {
		t.Errorf("good from %v to %v", one.Leaf.NotBefore, one.Leaf.NotAfter)
	}
	state := func(c tls.Certificate) tls.ConnectionState {
		return tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Leaf}}
	}
	fatal.If(t, pin.Check(state(one)))
	for name, s := range map[string]tls.ConnectionState{
		"another": state(two), "nobody": {}, "another, and the right one behind it": {PeerCertificates: []*x509.Certificate{two.Leaf, one.Leaf}},
	} {
		diff.Is(t, entry.ErrWrongKey, pin.Check(s), name)
	}
}
