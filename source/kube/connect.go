package kube

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// How much an agent may ask of the API server: the source opens a handful of
// watches, and status and Events come in small bursts.
const (
	requestsPerSecond = 20
	requestBurst      = 40
)

// Connect returns how to reach the API server: as the file kubeconfig says, or
// with "" as a pod of the cluster. It asks nothing of the server.
func Connect(kubeconfig string) (*rest.Config, error) {
	var c *rest.Config
	var err error
	if kubeconfig == "" {
		c, err = rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("reaching the API server as a pod of the cluster: %w; outside of one write --kubeconfig PATH", err)
		}
	} else {
		c, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reaching the API server as %s says: %w", kubeconfig, err)
		}
	}
	c.UserAgent = "namegate"
	c.QPS, c.Burst = requestsPerSecond, requestBurst
	// Kinds of the server itself come in the cheaper encoding; dynamic clients choose their own.
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.Wrap(func(t http.RoundTripper) http.RoundTripper { return attempts{t} })
	return c, nil
}
