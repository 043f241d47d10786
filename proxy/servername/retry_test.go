package servername

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// helloRetryRequest is one as servers send it.
func helloRetryRequest() []byte {
	return record(handshake, message(serverHello, slices.Concat([]byte{3, 3}, retryRandom, vector8(make([]byte, 32)), []byte{0x13, 1, 0}, vector16(nil))))
}

// TestSecondHello: after a HelloRetryRequest the second hello has to have the name of the first, whenever it is sent.
func TestSecondHello(t *testing.T) {
	unknown, same := modern(names("evil.test")), modern(names("GOOD.test"), padding(30))
	change := record(changeCipherSpec, []byte{1})
	for _, s := range []struct {
		name string
		send []byte
		want string
	}{
		{"same name", same, ""},
		{"behind ChangeCipherSpec", slices.Concat(change, same), ""},
		{"behind early data", slices.Concat(change, record(applicationData, make([]byte, 3000)), same), ""},
		{"in records", records(modernMessage(names("good.test")), 7), ""},
		{"and more", slices.Concat(same, record(applicationData, make([]byte, 300))), ""},
		{"another name", unknown, "another server name"},
		{"another granted name", modern(names("also.test")), "another server name"},
		{"another name behind ChangeCipherSpec", slices.Concat(change, unknown), "another server name"},
		{"another name in records", records(modernMessage(names("evil.test")), 1), "another server name"},
		{"no name", modern(), noName},
		{"no hello", record(handshake, message(16, make([]byte, 40))), noTLS},
		{"too much before it", slices.Repeat(record(applicationData, make([]byte, 3000)), 6), tooLarge},
	} {
		for _, early := range []bool{false, true} {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, corefile.DefaultRelayLimits)
				c, server := l.pair()
				if early {
					_ = write(c, s.send)
					time.Sleep(10 * time.Millisecond)
				}
				fatal.If(t, write(server, helloRetryRequest()))
				expect(t, c, string(helloRetryRequest()))
				if !early {
					_ = write(c, s.send)
				}
				if s.want != "" {
					d := l.denial()
					diff.Equal(t, ReasonServerName, d.Reason)
					diff.Has(t, s.want, d.Detail)
					if b, _ := io.ReadAll(server); len(b) > 0 {
						t.Errorf("the server got %d bytes", len(b))
					}
					return
				}
				expect(t, server, string(s.send))
				fatal.If(t, write(server, []byte("reply")))
				expect(t, c, "reply")
			})
		}
	}
}

// TestSecondHelloTakesAPlace among the hellos that wait.
func TestSecondHelloTakesAPlace(t *testing.T) {
	l := newLab(t, bounds(10, 10, 1, 1))
	_, one := l.pair()
	_, two := l.pair()
	for _, s := range []*net.TCPConn{one, two} {
		fatal.If(t, write(s, helloRetryRequest()))
		fatal.Await(t, "it waits", func() bool { return l.Stats().Hellos == 1 })
	}
	diff.Equal(t, ReasonLimit, l.denial().Reason)
}

// TestNothingBeforeAnswer: what is behind the first hello waits for the server's first bytes.
func TestNothingBeforeAnswer(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.pair()
	fatal.If(t, write(c, modern(names("evil.test"))))
	_ = s.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := s.Read(make([]byte, 1)); n > 0 {
		t.Error("a second hello arrived before the answer")
	}
}

func certificate(t testing.TB) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal.If(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"good.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	fatal.If(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestHandshakes of crypto/tls pass: each version, with a HelloRetryRequest, resumed, with a client's certificate.
func TestHandshakes(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	cert := certificate(t)
	cache := tls.NewLRUClientSessionCache(0)
	for _, s := range []struct {
		name           string
		client, server *tls.Config
		check          func(tls.ConnectionState) bool
	}{
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, &tls.Config{}, func(s tls.ConnectionState) bool { return s.Version == tls.VersionTLS12 }},
		{"TLS 1.3", &tls.Config{ClientSessionCache: cache}, &tls.Config{}, func(s tls.ConnectionState) bool { return s.Version == tls.VersionTLS13 }},
		{"HelloRetryRequest", &tls.Config{}, &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}, func(s tls.ConnectionState) bool { return s.CurveID == tls.CurveP521 && s.HelloRetryRequest }},
		{"client certificate", &tls.Config{Certificates: []tls.Certificate{cert}}, &tls.Config{ClientAuth: tls.RequireAnyClientCert}, func(tls.ConnectionState) bool { return true }},
	} {
		for range 2 {
			s.client.ServerName, s.client.InsecureSkipVerify = "good.test", true
			s.server.Certificates = []tls.Certificate{cert}
			c := l.dial()
			client := tls.Client(c, s.client)
			go func() {
				server := tls.Server(<-l.taken, s.server)
				_, _ = io.Copy(server, server)
				_ = server.Close()
			}()
			sent := bytes.Repeat([]byte("x"), 100000)
			go func() { _, _ = client.Write(sent); _ = client.CloseWrite() }()
			got, err := io.ReadAll(client)
			if err != nil || !bytes.Equal(got, sent) || !s.check(client.ConnectionState()) {
				t.Errorf("%s: %d bytes, %v, %+v", s.name, len(got), err, client.ConnectionState())
			}
			_ = client.Close()
		}
	}
}
