package scenarios

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	httpsPort = 8443 // answers with the server name, the Host header and the client's address
	tlsPort   = 8444 // an echo whose first line is the server name and the client's address
	ratePort  = 8445 // answers a hello with a word
)

// serverNameStage is a stage whose world serves TLS on every address.
type serverNameStage struct {
	*stage
	ca string // the file with the world's certificate

	mu     sync.Mutex
	served map[string]int // echoes that have ended, by server name
}

// serverNameZone: www and cdn share an address, as names on a CDN do.
const serverNameZone = `
	www.example.org. 600 IN A 198.51.100.1
	www.example.org. 600 IN AAAA 2001:db8:1::1
	cdn.example.org. 600 IN A 198.51.100.1
	cdn.example.org. 600 IN AAAA 2001:db8:1::1
	plain.example.org. 600 IN A 198.51.100.3`

// requires lets pods of an app reach a name on the world's TLS ports, if it is the server name.
func requires(name, app, host string) string {
	return policy(name, "podSelector: {matchLabels: {app: "+app+"}}\negress:\n- matches: [{name: "+host+"}]\n  serverName: Require\n"+
		"  ports: [{protocol: TCP, port: 8443, endPort: 8445}]")
}

// newServerNameStage has pod a reach www, and pod b cdn, both by the server name alone.
func newServerNameStage(t *testing.T, kind nodeKind) *serverNameStage {
	return serverNamesWith(t, kind, "grace 3s")
}

// serverNamesWith is newServerNameStage with lines of the block servernames.
func serverNamesWith(t *testing.T, kind nodeKind, lines string) *serverNameStage {
	t.Helper()
	s := &serverNameStage{stage: newStageOf(t, kind), served: map[string]int{}}
	s.agentWith(strings.Replace(corefile, "audit AUDIT", "audit AUDIT\n    servernames {\n        "+lines+"\n    }", 1))
	s.zone.add(serverNameZone)
	s.serveTLS()
	s.start(map[string]string{
		"a.yaml":   s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml":   s.Pod("b").Manifest("shop", "b", map[string]string{"app": "other"}),
		"www.yaml": requires("www", "client", "www.example.org"),
		"cdn.yaml": requires("cdn", "other", "cdn.example.org"),
	})
	for pod, name := range map[string]string{"a": "www.example.org", "b": "cdn.example.org"} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if got := s.resolve(pod, name, qtype); len(got) != 1 {
				t.Fatalf("pod %s resolves %s to %v", pod, name, got)
			}
		}
	}
	return s
}

// serveTLS starts the world's servers.
func (s *serverNameStage) serveTLS() {
	s.t.Helper()
	cert := s.certificate()
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert}
	plain, err := s.World.Listen(fmt.Sprintf("[::]:%d", httpsPort))
	fatal.If(s.t, err)
	server := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(answerHTTPS)}
	go server.ServeTLS(plain, "", "")
	s.t.Cleanup(func() { server.Close() })
	echo, err := s.World.Listen(fmt.Sprintf("[::]:%d", tlsPort))
	fatal.If(s.t, err)
	s.t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go s.echoTLS(tls.Server(c, &tls.Config{Certificates: config.Certificates}))
		}
	}()
}

// answerHTTPS sends as many bytes as the path says, or who asked for what, and takes what comes with a request.
func answerHTTPS(w http.ResponseWriter, r *http.Request) {
	taken, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	var size int64
	if n, _ := fmt.Sscanf(r.URL.Path, "/bytes/%d", &size); n == 1 {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = io.CopyN(w, zeros{}, size)
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	fmt.Fprintln(w, r.TLS.ServerName, r.Host, from.Addr().Unmap(), r.Proto, len(r.TLS.PeerCertificates), taken)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func (s *serverNameStage) echoTLS(c *tls.Conn) {
	defer c.Close()
	if c.Handshake() != nil {
		return
	}
	name := c.ConnectionState().ServerName
	from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	if _, err := fmt.Fprintln(c, name, from.Addr().Unmap()); err == nil {
		_, _ = io.Copy(c, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[name]++
}

// ended tells how many echoes for a name have ended at the server.
func (s *serverNameStage) ended(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[name]
}

// certificate makes one for all names of example.org, and writes it for clients.
func (s *serverNameStage) certificate() tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal.If(s.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example.org"}, DNSNames: []string{"*.example.org"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	fatal.If(s.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	fatal.If(s.t, err)
	s.ca = filepath.Join(s.t.TempDir(), "ca.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	fatal.If(s.t, os.WriteFile(s.ca, text, 0o644))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// hello begins TLS from a pod with a server name, "" for none, and returns the connection and what the server saw.
func (s *stage) hello(pod, to, name string) (net.Conn, string, error) {
	raw, err := s.Pod(pod).Dial("tcp", to, lab.Limit)
	if err != nil {
		return nil, "", err
	}
	c := tls.Client(raw, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	_ = c.SetDeadline(time.Now().Add(lab.Limit))
	line, err := firstLine(c)
	if err != nil {
		c.Close()
		return nil, "", err
	}
	return c, line, nil
}

// firstLine reads up to a newline, and no more.
func firstLine(c net.Conn) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := io.ReadFull(c, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
	}
}

// greets asserts what the echo server sees of a connection: "" where it is reset before.
func (s *stage) greets(pod, to, name, want string) {
	s.t.Helper()
	c, got, err := s.hello(pod, to, name)
	if err == nil {
		c.Close()
	}
	if got != want || want == "" && !isReset(err) {
		s.t.Errorf("pod %s to %s with the server name %q: %q, %v; want %q", pod, to, name, got, err, want)
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPIPE)
}

// opened opens a connection that is echoed until the end of the test.
func (s *stage) opened(pod, to, name string) net.Conn {
	s.t.Helper()
	c, _, err := s.hello(pod, to, name)
	fatal.If(s.t, err, "pod", pod, "to", to, "with the server name", name)
	s.t.Cleanup(func() { c.Close() })
	return c
}
