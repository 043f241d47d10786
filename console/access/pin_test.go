package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/namegate/namegate/console/entry"
	"github.com/namegate/namegate/testkit/fatal"
)

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
		if err := pin.Check(s); !errors.Is(err, entry.ErrWrongKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
