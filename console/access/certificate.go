package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"github.com/namegate/namegate/console/entry"
)

// certificateLife is how long an agent's certificate is written to be good. Callers
// ignore its dates: its key is published, and gone with the process.
const certificateLife = 10 * 365 * 24 * time.Hour

// newCertificate makes a key, which never leaves the process, and a certificate
// that it signs itself.
func newCertificate(now time.Time) (tls.Certificate, entry.Pin, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, entry.Pin{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "namegate agent"},
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.Add(certificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, entry.Pin{}, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, entry.Pin{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, entry.PinOf(leaf), nil
}
