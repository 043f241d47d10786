package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

// The extensions of the API server: the name of their Service, and the text of their answers.
const (
	extension     = "extension"
	extensionText = "said by the pod on node-b"
)

// extensionAPI is the path of a list of the aggregated API.
const extensionAPI = "/apis/lockout.example.org/v1/things"

// extensionCertificate returns a certificate of the extensions' Service, which is its own authority,
// and its key.
func (s *scenario) extensionCertificate() (certificate, key string) {
	s.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal.If(s, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: extension}, DNSNames: []string{extension + "." + s.ns + ".svc"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	fatal.If(s, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	fatal.If(s, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// extend gives the API servers an admission webhook for ConfigMaps of the namespace and an
// aggregated API, both served by a pod of node-b.
func (s *scenario) extend() {
	s.Helper()
	certificate, key := s.extensionCertificate()
	args, err := json.Marshal([]string{"extend", "8443", certificate, key, extensionText})
	fatal.If(s, err)
	serving := strings.Replace(pod(extension, "node-b", map[string]string{"app": extension}), `args: ["sleep"]`, "args: "+string(args)+", readinessProbe: {tcpSocket: {port: 8443}, periodSeconds: 1}", 1)
	s.Cleanup(func() { // ahead of the namespace: its end asks every aggregated API
		for _, object := range []string{"apiservice/v1.lockout.example.org", "validatingwebhookconfiguration/" + extension} {
			if _, err := the.Kubectl(s.ctx, "", "delete", object, "--ignore-not-found"); err != nil {
				s.Error(err)
			}
		}
	})
	s.run(serving, fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.lockout.example.org
  clientConfig: {caBundle: %[3]s, service: {namespace: %[2]s, name: %[1]s, path: /admit}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
  objectSelector: {matchLabels: {app: %[1]s}}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 5
  admissionReviewVersions: [v1]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.lockout.example.org}
spec: {group: lockout.example.org, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, caBundle: %[3]s, service: {namespace: %[2]s, name: %[1]s}}
`, extension, s.ns, base64.StdEncoding.EncodeToString([]byte(certificate))))
}

// asksExtensions has the API server of a node ask the webhook and the aggregated API, and returns the
// error of each that does not answer.
func (s *scenario) asksExtensions(n *cluster.Node) (webhook, aggregated error) {
	const object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: refused, labels: {app: " + extension + "}}}"
	_, err := n.Kubectl(s.ctx, object, "create", "-n", s.ns, "-f", "-")
	if err == nil || !strings.Contains(err.Error(), extensionText) {
		webhook = fmt.Errorf("the admission webhook, by the API server of %s: %w", n.Name, errOr(err, "the object was created"))
	}
	out, err := n.Kubectl(s.ctx, "", "get", "--raw", extensionAPI, "--request-timeout=10s")
	if err != nil || !strings.Contains(out, extensionText) {
		aggregated = fmt.Errorf("the aggregated API, by the API server of %s: %w", n.Name, errOr(err, out))
	}
	return webhook, aggregated
}

func errOr(err error, text string) error {
	if err == nil {
		err = errors.New(text)
	}
	return err
}

// apiServerOnNode starts an API server on a node until the test ends, and returns a function that
// ends it before.
func (s *scenario) apiServerOnNode(n *cluster.Node) (stop func()) {
	s.Helper()
	end, err := n.StartAPIServer(s.ctx)
	fatal.If(s, err)
	ended := false
	stop = func() {
		if !ended {
			ended = true
			if err := end(); err != nil {
				s.Error(err)
			}
		}
	}
	s.Cleanup(stop)
	return stop
}

// controlPlaneClosed: an API server on a node that is denied everything asks an admission webhook, an
// aggregated API and a kubelet of another node.
func (s *scenario) controlPlaneClosed(n *cluster.Node) {
	s.eventually(soon, "the extensions of the API server of "+n.Name, func() error { return errors.Join(s.asksExtensions(n)) })
	_, err := n.Kubectl(s.ctx, "", "logs", "-n", s.ns, "own-node-b")
	fatal.If(s, err)
	s.hostDials(n.Name, raw, denied)
}

// extensionsDenied: without the failsafes of pods and Services, the API server of a node reaches
// neither.
func (s *scenario) extensionsDenied(n *cluster.Node) {
	webhook, aggregated := s.asksExtensions(n)
	if webhook == nil || aggregated == nil {
		s.Errorf("extensions of the API server of %s answer although a rule lists their ranges: %v, %v", n.Name, webhook, aggregated)
	}
}
