package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

const allowOut = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: allow-out, namespace: shop}
spec:
  podSelector: {matchLabels: {app: curl-client}}
  egress:
  - matches:
    - name: www.example.org
    ports: [{protocol: TCP, port: 443}]
`

const podWeb = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: u1, labels: {app: curl-client}}
spec: {nodeName: node-a}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "2001:db8::1"}]}
`

// allowDB is an ordinary NetworkPolicy with every kind of peer.
const allowDB = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: curl-client}}
  policyTypes: [Egress]
  egress:
  - to:
    - namespaceSelector: {}
      podSelector: {matchExpressions: [{key: app, operator: In, values: [db]}]}
    ports: [{port: postgres}, {protocol: UDP, port: 53, endPort: 54}]
  - to:
    - ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}
`

// other is allowOut under another name.
func other(name string) string { return strings.Replace(allowOut, "allow-out", name, 1) }

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name)
	fatal.If(t, os.WriteFile(temporary, []byte(text), 0o600))
	fatal.If(t, os.Rename(temporary, filepath.Join(dir, name)))
}

// scanned is a folder that is read by hand.
func scanned(t *testing.T, dir string) *folder {
	t.Helper()
	d, err := newDecoder("")
	fatal.If(t, err)
	return &folder{path: dir, decoder: d, files: map[string]*file{}}
}

// policyNames joins the names of the policies of s.
func policyNames(s State) string {
	var names []string
	for _, p := range s.Input.Policies {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, " ")
}

// at is a moment some seconds after an arbitrary one.
func at(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
