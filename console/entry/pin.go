package entry

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
)

// Pin is the fingerprint of a server's key: the SHA-256 of its SubjectPublicKeyInfo.
type Pin [sha256.Size]byte

// pinPrefix says what kind of fingerprint follows.
const pinPrefix = "sha256/"

// PinOf returns the fingerprint of a certificate's key.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// MarshalText returns the fingerprint as it is published: "sha256/" and base64.
func (p Pin) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode([]byte(pinPrefix), p[:]), nil
}

// UnmarshalText reads what MarshalText writes.
func (p *Pin) UnmarshalText(text []byte) error {
	coded, ok := bytes.CutPrefix(text, []byte(pinPrefix))
	raw, err := base64.StdEncoding.AppendDecode(nil, coded)
	if !ok || err != nil || len(raw) != len(p) {
		return fmt.Errorf("%q is no fingerprint of a key", text)
	}
	*p = Pin(raw)
	return nil
}

// ErrWrongKey is the end of a handshake with a server that has another key.
var ErrWrongKey = errors.New("the server has another key than the agent published")

// Check refuses every server whose key is another. It is for tls.Config.VerifyConnection,
// which is called before the client sends anything of its own.
func (p Pin) Check(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return ErrWrongKey
	}
	if got := PinOf(s.PeerCertificates[0]); subtle.ConstantTimeCompare(got[:], p[:]) != 1 {
		return ErrWrongKey
	}
	return nil
}
