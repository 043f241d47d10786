package scenarios

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// tlsClient is a program that requests a URL by HTTPS and prints the answer. PEM is the file with the world's
// certificate and its key, HOST the name to ask for, DIR the folder of build.
type tlsClient struct {
	name    string
	needs   []string
	build   func(dir string) *exec.Cmd
	argv    string
	wants   string   // of the answer, behind the address of the client
	program []string // in place of argv
}

func servernameFile(name string) string { return filepath.Join("testdata", "servername", name) }

const url = "https://HOST:8443/"

var tlsClients = []tlsClient{
	{name: "curl", needs: []string{"curl"}, argv: "curl -sS --cacert PEM " + url, wants: "HTTP/2.0 0 0"},
	{name: "curl-keep-alive", needs: []string{"curl"}, argv: "curl -sS --http1.1 --cacert PEM -o /dev/null " + url + " -o - " + url, wants: "HTTP/1.1 0 0"},
	{name: "curl-client-certificate", needs: []string{"curl"}, argv: "curl -sS --cacert PEM --cert PEM " + url, wants: "HTTP/2.0 1 0"},
	{name: "curl-tls12", needs: []string{"curl"}, argv: "curl -sS --tls-max 1.2 --cacert PEM " + url, wants: "HTTP/2.0 0 0"},
	{name: "curl-upload", needs: []string{"curl"}, wants: "HTTP/1.1 0 1073741824",
		program: []string{"sh", "-c", "head -c 1073741824 /dev/zero | curl -sS --http1.1 --cacert PEM -T - " + url}},
	{name: "wget", needs: []string{"wget"}, argv: "wget -q -O - --ca-certificate=PEM " + url, wants: "HTTP/1.1 0 0"},
	{name: "openssl", needs: []string{"openssl"}, wants: "HTTP/1.1 0 0",
		program: []string{"sh", "-c", `printf 'GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n' | openssl s_client -quiet -CAfile PEM -servername HOST -connect HOST:8443 2>/dev/null`}},
	{name: "python-requests", needs: []string{pythonRequests}, argv: "/usr/bin/python3 " + servernameFile("https.py") + " PEM " + url, wants: "HTTP/1.1 0 0"},
	{name: "node", needs: []string{"node"}, argv: "node " + servernameFile("https.js") + " " + url, wants: "HTTP/1.1 0 0"},
	{name: "java", needs: []string{"java", "javac"}, argv: "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp DIR Https " + url, wants: "HTTP/2.0 0 0",
		build: func(dir string) *exec.Cmd {
			return exec.Command("javac", "-d", dir, servernameFile("Https.java"))
		}},
}

// TestServerNameClients: programs that know nothing of the agent reach an allowed name as on a direct connection, also
// with client certificates and with 1 GiB in each direction; and no other name of the address.
func TestServerNameClients(t *testing.T) {
	t.Parallel()
	s := newServerNameStage(t, routed)
	etc, err := lab.WriteEtc(t.TempDir(), lab.Resolver4.String())
	fatal.If(t, err)
	for _, c := range tlsClients {
		t.Run(c.name, func(t *testing.T) {
			needed(t, c.needs...)
			dir := t.TempDir()
			if c.build != nil {
				if out, err := c.build(dir).CombinedOutput(); err != nil {
					t.Fatalf("build: %v\n%s", err, out)
				}
			}
			get := func(host string) (string, error) {
				argv := append(c.program, strings.Fields(c.argv)...)
				var line []string
				for _, arg := range argv {
					line = append(line, strings.NewReplacer("PEM", s.ca, "HOST", host, "DIR", dir).Replace(arg))
				}
				return s.Pod("a").RunIn(etc, line...)
			}
			out, err := get("www.example.org")
			fields := strings.Fields(out)
			if err != nil || len(fields) < 6 || !strings.HasSuffix(strings.TrimSpace(out), c.wants) || !strings.Contains(nodeSeen4+nodeSeen6, fields[len(fields)-4]) {
				t.Errorf("answer %q, error %v; want what ends with %q, for the node", out, err, c.wants)
			}
			if out, err := get("cdn.example.org"); strings.Contains(out, "HTTP/") {
				t.Errorf("another name of the address: %q, %v", out, err)
			}
		})
	}
	t.Run("curl-download", func(t *testing.T) {
		out, err := s.Pod("a").RunIn(etc, "curl", "-sS", "--cacert", s.ca, "-o", "/dev/null", "-w", "%{size_download} %{http_code}", "https://www.example.org:8443/bytes/"+fmt.Sprint(1<<30))
		if err != nil || out != "1073741824 200" {
			t.Errorf("1 GiB: %q, %v", out, err)
		}
	})
}

var (
	rateLength = flag.Duration("server-name-length", 20*time.Second, "how long TestServerNameRate connects")
	ratePerPod = flag.Int("server-name-rate", 250, "how many connections a second each of two pods opens in TestServerNameRate")
)

// rateInFlight bounds the connections of a host that are open at a time: on a slow machine there are fewer a second.
const rateInFlight = 32

// TestServerNameRate: of many connections a second to one address, each of them short, none is lost; and the node's own
// programs, which connect there too, notice nothing.
func TestServerNameRate(t *testing.T) {
	t.Parallel()
	s := newServerNameStage(t, routed)
	s.apply(map[string]string{"cdn.yaml": requires("cdn", "other", "www.example.org")})
	s.resolve("b", "www.example.org", dns.TypeA)
	s.answersHellos()
	hello := clientHello(t, "www.example.org")
	var asked, lost [3]atomic.Int64
	visit := func(i int, h *lab.Host) {
		asked[i].Add(1)
		if err := greet(h, hello, asked[i].Load()%2 == 0); err != nil && lost[i].Add(1) < 10 {
			t.Log(h.Name, err)
		}
	}
	var all sync.WaitGroup
	end := time.Now().Add(*rateLength)
	for i, h := range []*lab.Host{s.Pod("a").Host, s.Pod("b").Host, s.Node} {
		pace := time.Second / time.Duration(*ratePerPod)
		if h == s.Node {
			pace = 100 * time.Millisecond
		}
		var turns atomic.Int64
		begun := time.Now()
		for range rateInFlight {
			all.Go(func() {
				for {
					next := begun.Add(time.Duration(turns.Add(1)) * pace)
					if !next.Before(end) || !time.Now().Before(end) {
						return
					}
					time.Sleep(time.Until(next))
					visit(i, h)
				}
			})
		}
	}
	all.Wait()
	for i, h := range []string{"pod a", "pod b", "the node"} {
		t.Logf("%s: %d connections in %v, %d lost", h, asked[i].Load(), *rateLength, lost[i].Load())
		if n := lost[i].Load(); n > 0 {
			t.Errorf("%s lost %d connections: %q", h, n, s.claims())
		}
	}
}

// answersHellos starts the world's server at ratePort.
func (s *serverNameStage) answersHellos() {
	s.t.Helper()
	l, err := s.World.Listen(fmt.Sprintf("[::]:%d", ratePort))
	fatal.If(s.t, err)
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				if n, err := c.Read(b); n > 0 && err == nil {
					_, _ = c.Write([]byte("ok\n"))
					_, _ = c.Read(b) // up to the client's end, unless it waits for that of the server
				}
			}()
		}
	}()
}

// clientHello returns what a TLS client sends first.
func clientHello(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	go tls.Client(client, &tls.Config{ServerName: name}).Handshake()
	defer client.Close()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	fatal.If(t, err)
	return b[:n]
}

// greet sends a hello and reads the answer. The server ends the connection first, or the client.
func greet(h *lab.Host, hello []byte, serverFirst bool) error {
	c, err := h.Dial("tcp", "198.51.100.1:8445", lab.Limit)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(lab.Limit))
	if _, err := c.Write(hello); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, 3)); err != nil || !serverFirst {
		return err
	}
	if _, err := c.Write([]byte("end")); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the server's end: %w", err)
	}
	return nil
}
