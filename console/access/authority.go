package access

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Where the API server publishes whose client certificates it trusts.
const (
	authorityNamespace = "kube-system"
	authorityName      = "extension-apiserver-authentication"
	authorityKey       = "client-ca-file"
)

const (
	// authorityFresh is the interval at which the authority is read again: a change of it
	// applies after at most this time.
	authorityFresh = 5 * time.Minute
	// authorityAgain is how soon after a failure.
	authorityAgain = 10 * time.Second
)

// authority has the certificate authorities of the cluster's users.
type authority struct {
	client kubernetes.Interface
	log    *slog.Logger
	// pool is nil while nothing is known, and empty where the cluster has no such certificates.
	pool atomic.Pointer[x509.CertPool]
}

// read asks once.
func (a *authority) read(ctx context.Context) error {
	m, err := a.client.CoreV1().ConfigMaps(authorityNamespace).Get(ctx, authorityName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the ConfigMap %s/%s: %w", authorityNamespace, authorityName, err)
	}
	pool := x509.NewCertPool()
	if text := m.Data[authorityKey]; text != "" && !pool.AppendCertsFromPEM([]byte(text)) {
		return fmt.Errorf("the ConfigMap %s/%s has no certificate in %s", authorityNamespace, authorityName, authorityKey)
	}
	a.pool.Store(pool)
	return nil
}

// keep reads again and again until ctx ends. What was known stays known.
func (a *authority) keep(ctx context.Context) {
	keep(ctx, authorityFresh, authorityAgain, a.read, func(err error) {
		if err == nil {
			a.log.Info("read the users' certificate authority again")
			return
		}
		a.log.Warn("cannot read the users' certificate authority; callers with tokens are served; trying again", "error", err)
	})
}

// keep calls do at an interval, and sooner after a failure, until ctx ends. It reports the first failure of a row, and
// nil when that is over.
func keep(ctx context.Context, every, again time.Duration, do func(context.Context) error, report func(error)) {
	failing := false
	for ctx.Err() == nil {
		after, err := every, do(ctx)
		if failed := err != nil; failed != failing && (!failed || ctx.Err() == nil) {
			report(err)
		}
		if failing = err != nil; failing {
			after = again
		}
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
	}
}

var (
	errNoAuthority  = errors.New("the agent does not know yet who signs the users' certificates")
	errNoUserInCert = errors.New("the client certificate names no user")
)

// verify judges a client's certificates as the API server does.
func (a *authority) verify(certs []*x509.Certificate, now time.Time) error {
	pool := a.pool.Load()
	if pool == nil {
		return errNoAuthority
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("the client certificate is not one of this cluster: %w", err)
	}
	if certs[0].Subject.CommonName == "" {
		return errNoUserInCert
	}
	return nil
}
