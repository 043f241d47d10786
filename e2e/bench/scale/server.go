package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
)

const (
	apiServer = "127.0.0.1:6443"
	etcdURL   = "http://127.0.0.1:2379"
	// token is the one user's, a member of system:masters.
	token = "bench"
	// serverLimit is how long the API server may take to be ready, dialLimit a connection to it.
	serverLimit, dialLimit = 2 * time.Minute, 10 * time.Second
)

// server is etcd and the API server.
type server struct {
	etcd, api *exec.Cmd
	client    kubernetes.Interface
}

// startServer starts etcd and the API server in the benchmark's namespace, and waits until the
// API server is ready.
func (b *bench) startServer() (*server, error) {
	keys, users := filepath.Join(b.Dir, "keys.pem"), filepath.Join(b.Dir, "tokens.csv")
	if err := errors.Join(writeKey(keys), os.WriteFile(users, []byte(token+",bench,bench,system:masters\n"), 0o600)); err != nil {
		return nil, fmt.Errorf("write the files of the API server: %w", err)
	}
	s := &server{}
	err := func() (err error) {
		// What it stores need not outlive a loss of power, and is in memory.
		if s.etcd, err = b.start("etcd", "--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--data-dir="+filepath.Join(b.Dir, "etcd"),
			"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380"); err != nil {
			return err
		}
		if s.api, err = b.start("kube-apiserver", "--etcd-servers="+etcdURL, "--bind-address=127.0.0.1", "--advertise-address=192.168.77.1", "--secure-port=6443",
			"--cert-dir="+filepath.Join(b.Dir, "pki"), "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", "--token-auth-file="+users,
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+keys, "--service-account-signing-key-file="+keys); err != nil {
			return err
		}
		if s.client, err = kubernetes.NewForConfig(b.config(nil)); err != nil {
			return fmt.Errorf("make a client of the API server: %w", err)
		}
		return s.ready(b.Context)
	}()
	if err != nil {
		return nil, errors.Join(err, b.logOf("kube-apiserver"), s.stop())
	}
	return s, nil
}

// start starts a program in the benchmark's namespace, with a log in its folder.
func (b *bench) start(program string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(b.logPath(program))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(b.programs, program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := b.host.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return cmd, nil
}

func (b *bench) logPath(program string) string { return filepath.Join(b.Dir, program+".log") }

// logOf returns the end of a program's log as an error.
func (b *bench) logOf(program string) error {
	text, err := os.ReadFile(b.logPath(program))
	if err != nil {
		return err
	}
	return fmt.Errorf("the end of the log of %s:\n%s", program, text[max(0, len(text)-2000):])
}

// ready waits until the API server is ready.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	for {
		err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stop ends both programs.
func (s *server) stop() error {
	var errs []error
	for _, cmd := range []*exec.Cmd{s.api, s.etcd} {
		if cmd == nil {
			continue
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			errs = append(errs, fmt.Errorf("end %s: %w", cmd.Path, err))
		}
		_ = cmd.Wait() // it was killed
	}
	return errors.Join(errs...)
}

// config returns how a client reaches the API server: without a limit of requests and, with a
// meter, with all that it sends and receives counted.
func (b *bench) config(m *meter) *rest.Config {
	c := &rest.Config{Host: "https://" + apiServer, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON}}
	c.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		conn, err := b.host.Dial(network, address, dialLimit)
		if err == nil && m != nil {
			conn = counted{conn, m}
		}
		return conn, err
	}
	if m != nil {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return metered{next, m} })
	}
	return c
}

// memory reports the memory of both programs.
func (b *bench) memory(state string) error {
	for name, cmd := range map[string]*exec.Cmd{"scale.apiserver.rss_mib": b.api.api, "scale.etcd.rss_mib": b.api.etcd} {
		bytes, err := process.RSS(cmd.Process.Pid)
		if err != nil {
			return err
		}
		if err := b.Report(figure.Figure{Name: name, Value: float64(bytes) / (1 << 20), Unit: "MiB", State: state}, 0); err != nil {
			return err
		}
	}
	return nil
}

// writeKey writes the key of service accounts.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
