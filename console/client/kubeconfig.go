package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth/oidc" // the last old-style provider in kubectl
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/entry"
)

const (
	// dialTime bounds the way to an agent: the connection, and again the handshake.
	dialTime = 5 * time.Second
	// answerTime is how long an agent may take to begin its answer; it may have to ask the API server twice.
	answerTime = 15 * time.Second
	// A command asks a handful of questions, and is over.
	requestsPerSecond = 50
	requestBurst      = 100
)

// DefaultNamespace is where agents are looked for.
const DefaultNamespace = "namegate-system"

// Login is the cluster, the user and the namespace of requests, in kubectl's words.
type Login struct {
	// Kubeconfig is a file, "" for what kubectl uses: KUBECONFIG, or ~/.kube/config.
	Kubeconfig string
	// Context and Namespace are the file's own where they are "".
	Context, Namespace string
	// Agents is the namespace that Namegate is installed in.
	Agents string
	// Address is dialled in place of the published addresses, as HOST:PORT; "" for none.
	Address string
	// AllAgents: a token may be sent to the agents of all nodes.
	AllAgents bool
}

// Cluster is a cluster whose agents can be asked.
type Cluster struct {
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	login     Login
	namespace string
	// transport has the caller's credentials for the API server and agents: token,
	// certificate, plugin.
	transport *transport.Config
}

// errImpersonates says that a kubeconfig speaks for somebody else.
var errImpersonates = errors.New("agents refuse impersonation, and this kubeconfig impersonates a user; leave `as` and `as-groups` out, or use that user's own credentials")

// Connect reads the kubeconfig. It sends no request yet. The error is a *console.Misused.
func Connect(l Login) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = l.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: l.Context}
	overrides.Context.Namespace = l.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	namespace, _, err := loader.Namespace()
	var config *rest.Config
	if err == nil {
		config, err = loader.ClientConfig()
	}
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, &console.Misused{Err: errors.New("no kubeconfig names a cluster; write --kubeconfig FILE, or set KUBECONFIG")}
	case err != nil:
		return nil, &console.Misused{Err: fmt.Errorf("read the kubeconfig: %w", err)}
	}
	if config.Impersonate.UserName != "" || config.Impersonate.UID != "" || len(config.Impersonate.Groups)+len(config.Impersonate.Extra) > 0 {
		return nil, &console.Misused{Err: errImpersonates}
	}
	if raw, err := loader.RawConfig(); err == nil && l.Context == "" {
		l.Context = raw.CurrentContext
	}
	return connect(config, namespace, l)
}

func connect(config *rest.Config, namespace string, l Login) (*Cluster, error) {
	if l.Agents == "" {
		l.Agents = DefaultNamespace
	}
	config.UserAgent = "kubectl-namegate"
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, &console.Misused{Err: fmt.Errorf("read the kubeconfig: %w", err)}
	}
	dynamic, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, &console.Misused{Err: fmt.Errorf("read the kubeconfig: %w", err)}
	}
	t, err := config.TransportConfig()
	if err != nil {
		return nil, &console.Misused{Err: fmt.Errorf("read the credentials of the kubeconfig: %w", err)}
	}
	return &Cluster{client: client, dynamic: dynamic, login: l, namespace: namespace, transport: t}, nil
}

// Namespace returns the namespace that is asked about where none is named: that of
// the login, else the context's, else "default".
func (c *Cluster) Namespace() string { return c.namespace }

// Context returns the name of the kubeconfig's context, "" where it names none.
func (c *Cluster) Context() string { return c.login.Context }

// sendsToken tells whether the caller's credentials are sent with each request, a token or a password, whatever they
// come from: it has them added to a request that is not sent.
func (c *Cluster) sendsToken(ctx context.Context) (yes bool, err error) {
	way, err := transport.HTTPWrappersForConfig(c.transport, unsent(func(r *http.Request) {
		yes = r.Header.Get("Authorization") != ""
	}))
	if err != nil {
		return false, fmt.Errorf("read the credentials of the kubeconfig: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://agent.invalid/", nil)
	if err != nil {
		return false, fmt.Errorf("make a request: %w", err)
	}
	resp, err := way.RoundTrip(r)
	if err != nil {
		return false, &console.Unreachable{Err: fmt.Errorf("get the credentials of the kubeconfig: %w", err)}
	}
	return yes, resp.Body.Close()
}

// unsent is a way on which no request is sent.
type unsent func(*http.Request)

// RoundTrip looks at the request.
func (f unsent) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// roundTripper returns the way to a server with a key, and to no other. It sends
// the caller's token or certificate once the server has shown the key.
func (c *Cluster) roundTripper(pin entry.Pin) (http.RoundTripper, error) {
	own := *c.transport
	// An agent is identified by its key; authorities and names are the API server's.
	own.TLS.CAData, own.TLS.CAFile, own.TLS.ServerName, own.TLS.NextProtos = nil, "", "", nil
	own.TLS.Insecure = true
	config, err := transport.TLSConfigFor(&own)
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the kubeconfig: %w", err)
	}
	config.VerifyConnection = pin.Check
	config.MinVersion = tls.VersionTLS13 // as agents speak; before it, certificates are sent in the clear
	base := &http.Transport{
		TLSClientConfig: config, Proxy: own.Proxy, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, TLSHandshakeTimeout: dialTime,
		ResponseHeaderTimeout: answerTime, DisableKeepAlives: true,
	}
	if base.Proxy == nil {
		base.Proxy = http.ProxyFromEnvironment
	}
	return transport.HTTPWrappersForConfig(&own, base)
}
