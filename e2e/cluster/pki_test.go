package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"slices"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/namegate/namegate/testkit/fatal"
)

func testAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := newAuthority()
	fatal.If(t, err)
	return a
}

func TestIssuedCertificates(t *testing.T) {
	a := testAuthority(t)
	cert, key, err := a.issue("system:node:node-a", []string{"system:nodes"}, []string{"node-a"}, netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11"))
	fatal.If(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatalf("certificate and key do not fit: %v", err)
	}
	leaf := pair.Leaf
	if leaf.Subject.CommonName != "system:node:node-a" || !slices.Equal(leaf.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the certificate is of %s, want system:node:node-a of system:nodes", leaf.Subject)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.pem)
	for _, name := range []string{"node-a", "192.0.2.11", "2001:db8::11"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("as server %s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "192.0.2.12"}); err == nil {
		t.Error("the certificate is good for an address that is not its own")
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("as client: %v", err)
	}
	others := x509.NewCertPool()
	others.AppendCertsFromPEM(testAuthority(t).pem)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: others}); err == nil {
		t.Error("another authority vouches for the certificate")
	}
}

func TestKubeconfigIsRead(t *testing.T) {
	a := testAuthority(t)
	cert, key, err := a.issue("kubernetes-admin", []string{"system:masters"}, nil)
	fatal.If(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(renderKubeconfig(a.pem, cert, key))
	fatal.If(t, err)
	if config.Host != "https://10.77.0.10:6443" {
		t.Errorf("the API server is %s", config.Host)
	}
	if string(config.CAData) != string(a.pem) || string(config.CertData) != string(cert) || string(config.KeyData) != string(key) {
		t.Error("the credentials are not those that were written")
	}
}
