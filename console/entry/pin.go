package entry

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Pin is the fingerprint of a server's key: the SHA-256 of its SubjectPublicKeyInfo.
type Pin [sha256.Size]byte

// pinPrefix says what kind of fingerprint follows.
const pinPrefix = "sha256/"

// PinOf returns the fingerprint of a certificate's key.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// String returns the fingerprint as it is published: "sha256/" and base64.
func (p Pin) String() string { return pinPrefix + base64.StdEncoding.EncodeToString(p[:]) }

// ParsePin reads what String writes.
func ParsePin(text string) (p Pin, err error) {
	coded, ok := strings.CutPrefix(text, pinPrefix)
	if !ok {
		return p, fmt.Errorf("fingerprint %q does not begin with %s", text, pinPrefix)
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	if err != nil || len(raw) != len(p) {
		return p, fmt.Errorf("fingerprint %q is not that of a key", text)
	}
	copy(p[:], raw)
	return p, nil
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
