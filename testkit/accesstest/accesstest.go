// Package accesstest has an API server and certificates for tests of both sides of the console's access.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/testkit/fatal"
)

// API is a fake that knows tokens and rights, and counts its requests.
type API struct {
	*fake.Clientset
	Mu      sync.Mutex
	Tokens  map[string]authenticationv1.UserInfo
	Rights  map[string][]string // by user: the namespaces whose policies it may get, and the kinds of cluster policies
	gone    bool                // it answers no review
	Reviews int                 // of tokens
	Asked   []authorizationv1.SubjectAccessReviewSpec
}

// ErrGone is what it answers then.
var ErrGone = errors.New("the API server is away")

// NewAPI returns an API server with objects, which knows no token and gives no right.
func NewAPI(objects ...runtime.Object) *API {
	s := &API{Clientset: fake.NewClientset(objects...), Tokens: map[string]authenticationv1.UserInfo{}, Rights: map[string][]string{}}
	s.PrependReactor("create", "tokenreviews", func(a clienttest.Action) (bool, runtime.Object, error) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		s.Reviews++
		if s.gone {
			return true, nil, ErrGone
		}
		r := a.(clienttest.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		r.Status.User, r.Status.Authenticated = s.Tokens[r.Spec.Token], s.Tokens[r.Spec.Token].Username != ""
		return true, r, nil
	})
	s.PrependReactor("create", "subjectaccessreviews", func(a clienttest.Action) (bool, runtime.Object, error) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		if s.gone {
			return true, nil, ErrGone
		}
		r := a.(clienttest.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		s.Asked = append(s.Asked, r.Spec)
		what := r.Spec.ResourceAttributes.Namespace
		if kind := r.Spec.ResourceAttributes.Resource; strings.HasPrefix(kind, "cluster") || kind == v1alpha1.NodeResource {
			what = kind
		}
		r.Status.Allowed = slices.Contains(s.Rights[r.Spec.User], what)
		return true, r, nil
	})
	return s
}

// Leave has no review answered, until Come.
func (s *API) Leave() { s.Mu.Lock(); defer s.Mu.Unlock(); s.gone = true }

// Come has reviews answered again.
func (s *API) Come() { s.Mu.Lock(); defer s.Mu.Unlock(); s.gone = false }

// CA is a certificate authority.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes one.
func NewCA(t *testing.T) *CA {
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
	return &CA{cert, key}
}

// PEM returns its certificate.
func (c *CA) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}))
}

// Issue makes a certificate and its key, both as PEM.
func (c *CA) Issue(t *testing.T, change func(*x509.Certificate)) (cert, key []byte) {
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

// Parsed reads a certificate of Issue.
func Parsed(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	fatal.If(t, err)
	return c
}

// ClientCA is the ConfigMap that tells of the authority.
func ClientCA(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: map[string]string{"client-ca-file": text},
	}
}

// Node is one with addresses.
func Node(name string, addresses ...corev1.NodeAddress) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: addresses}}
}

// Pod is one on a node.
func Pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

// Namespace is that of the agents.
const Namespace = "namegate-system"

// PublishAt writes the annotation of a node.
func PublishAt(t *testing.T, api *API, node string, pin entry.Pin, at ...netip.AddrPort) {
	t.Helper()
	text, err := entry.Entry{Node: node, Addresses: at, Pin: pin}.Encode()
	fatal.If(t, err)
	leases := api.CoordinationV1().Leases(Namespace)
	l, err := leases.Get(t.Context(), entry.LeaseOf(node), metav1.GetOptions{})
	if err != nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: entry.LeaseOf(node)}}
		_, err = leases.Create(t.Context(), l, metav1.CreateOptions{})
		fatal.If(t, err)
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, node+entry.Suffix, text)
	_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
	fatal.If(t, err)
}

// Lease returns a Lease as it is now.
func Lease(t *testing.T, api *API, name string) *coordinationv1.Lease {
	t.Helper()
	l, err := api.CoordinationV1().Leases(Namespace).Get(t.Context(), name, metav1.GetOptions{})
	fatal.If(t, err)
	return l
}
