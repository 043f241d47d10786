package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// validity of all certificates: a cluster is not kept for longer.
const validity = 30 * 24 * time.Hour

// authority signs the cluster's certificates. Clients and servers share it.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's authority: %w", err)
	}
	a := &authority{key: key}
	template := certificate("namegate-e2e", nil)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make the cluster's authority: %w", err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, nil
}

func certificate(user string, groups []string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err) // the machine has no source of randomness
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// issue makes a certificate and its key, both as PEM, for a user or a server.
func (a *authority) issue(user string, groups, names []string, addrs ...netip.Addr) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate to %s: %w", user, err)
	}
	template := certificate(user, groups)
	template.DNSNames = names
	for _, addr := range addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate to %s: %w", user, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate to %s: %w", user, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// pki is the folder of the cluster's certificates.
type pki struct{ *authority }

func newPKI() (pki, error) {
	if err := os.MkdirAll(pkiDir, 0o700); err != nil {
		return pki{}, fmt.Errorf("make the folder of certificates: %w", err)
	}
	a, err := newAuthority()
	if err != nil {
		return pki{}, err
	}
	return pki{a}, os.WriteFile(pkiFile("ca.crt"), a.pem, 0o600)
}

func pkiFile(name string) string { return filepath.Join(pkiDir, name) }

// server writes NAME.crt and NAME.key.
func (p pki) server(name, user string, groups, names []string, addrs ...netip.Addr) error {
	cert, key, err := p.issue(user, groups, names, addrs...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(pkiFile(name+".crt"), cert, 0o600); err != nil {
		return fmt.Errorf("write the certificate of %s: %w", name, err)
	}
	return os.WriteFile(pkiFile(name+".key"), key, 0o600)
}

// kubeconfig writes NAME.conf, with which a user reaches the API server.
func (p pki) kubeconfig(name, user string, groups ...string) error {
	cert, key, err := p.issue(user, groups, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(pkiFile(name+".conf"), renderKubeconfig(p.pem, cert, key), 0o600)
}

func renderKubeconfig(ca, cert, key []byte) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: namegate-e2e
  cluster: {server: "https://%s", certificate-authority-data: %s}
users:
- name: self
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: namegate-e2e
  context: {cluster: namegate-e2e, user: self}
current-context: namegate-e2e
`, APIServer, base64Of(ca), base64Of(cert), base64Of(key))
}
