package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

const aKubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: me, user: {token: secret}}]
`

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	fatal.If(t, os.WriteFile(good, []byte(aKubeconfig), 0o600))
	fatal.If(t, os.WriteFile(bad, []byte("clusters: ["), 0o600))
	c, err := Connect(good)
	fatal.If(t, err)
	if c.Host != "https://192.0.2.1:6443" || c.BearerToken != "secret" || c.QPS == 0 || c.Burst == 0 || !strings.Contains(c.ContentType, "protobuf") ||
		c.UserAgent != "namegate" || c.Timeout != 0 { // a timeout would end every watch
		t.Errorf("%v", c)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, want := range map[string]string{"": "--kubeconfig PATH", bad: bad, filepath.Join(dir, "nowhere"): "nowhere"} {
		if _, err := Connect(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
