package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log"
	"log/slog"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/testkit/fatal"
)

var silent = slog.New(slog.DiscardHandler)

// apiServer is a fake that knows tokens and rights, and counts its requests.
type apiServer struct {
	*fake.Clientset
	mu      sync.Mutex
	tokens  map[string]authenticationv1.UserInfo
	rights  map[string][]string // by user: the namespaces whose policies it may get, and the kinds of cluster policies
	gone    bool                // it answers no review
	reviews int                 // of tokens
	asked   []authorizationv1.SubjectAccessReviewSpec
}

var errGone = errors.New("the API server is away")

func newAPIServer(objects ...runtime.Object) *apiServer {
	s := &apiServer{Clientset: fake.NewClientset(objects...), tokens: map[string]authenticationv1.UserInfo{}, rights: map[string][]string{}}
	s.PrependReactor("create", "tokenreviews", func(a clienttest.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reviews++
		if s.gone {
			return true, nil, errGone
		}
		r := a.(clienttest.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		r.Status.User, r.Status.Authenticated = s.tokens[r.Spec.Token], s.tokens[r.Spec.Token].Username != ""
		return true, r, nil
	})
	s.PrependReactor("create", "subjectaccessreviews", func(a clienttest.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.gone {
			return true, nil, errGone
		}
		r := a.(clienttest.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		s.asked = append(s.asked, r.Spec)
		what := r.Spec.ResourceAttributes.Namespace
		if kind := r.Spec.ResourceAttributes.Resource; strings.HasPrefix(kind, "cluster") {
			what = kind
		}
		r.Status.Allowed = slices.Contains(s.rights[r.Spec.User], what)
		return true, r, nil
	})
	return s
}

// leave and come say whether reviews are answered.
func (s *apiServer) leave() { s.mu.Lock(); defer s.mu.Unlock(); s.gone = true }
func (s *apiServer) come()  { s.mu.Lock(); defer s.mu.Unlock(); s.gone = false }

// ca is a certificate authority.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal.If(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	fatal.If(t, err)
	cert, err := x509.ParseCertificate(der)
	fatal.If(t, err)
	return &ca{cert, key}
}

func (c *ca) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}))
}

// issue makes a certificate and its key, both as PEM.
func (c *ca) issue(t *testing.T, change func(*x509.Certificate)) (cert, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal.If(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "carol", Organization: []string{"builders"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, own.Public(), c.key)
	fatal.If(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(own)
	fatal.If(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// parsed reads a certificate of issue.
func parsed(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	fatal.If(t, err)
	return c
}

// clientCA is the ConfigMap that tells of the authority.
func clientCA(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: authorityNamespace, Name: authorityName}, Data: map[string]string{authorityKey: text},
	}
}

func node(name string, addresses ...corev1.NodeAddress) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: addresses}}
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

// newServer makes a server on a free port of the loopback.
func newServer(t *testing.T, api *apiServer, now func() time.Time) *Server {
	t.Helper()
	s, err := New(Options{
		Client: api, Namespace: DefaultNamespace, DaemonSet: "namegate", Node: "n1", Log: silent, Now: now,
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
	})
	fatal.If(t, err)
	return s
}

// statusOf returns the status of a refusal, 0 if the error is none.
func statusOf(err error) int {
	var r *console.Refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return 0
}

// quiet is a log for servers that are called wrongly on purpose.
func quiet() *log.Logger { return slog.NewLogLogger(silent.Handler(), slog.LevelDebug) }
