package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
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

func TestPinText(t *testing.T) {
	_, pin, err := newCertificate(time.Now())
	fatal.If(t, err)
	got, err := entry.ParsePin(pin.String())
	if err != nil || got != pin || !strings.HasPrefix(pin.String(), "sha256/") || len(pin.String()) != 7+44 {
		t.Errorf("%s became %s: %v", pin, got, err)
	}
	for _, bad := range []string{"", "sha256/", pin.String() + "A", pin.String()[:40], "SHA256/" + pin.String()[7:], pin.String()[7:], " " + pin.String()} {
		if _, err := entry.ParsePin(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
