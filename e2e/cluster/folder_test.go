package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestStartOfTellsProcessesApart(t *testing.T) {
	own, err := startOf(os.Getpid())
	fatal.If(t, err)
	if again, err := startOf(os.Getpid()); err != nil || again != own {
		t.Errorf("the own start is %s, then %s (%v)", own, again, err)
	}
	// Process 1 began long before this one.
	if first, err := startOf(1); err != nil || first == own {
		t.Errorf("process 1 began at %s, this one at %s (%v)", first, own, err)
	}
	cmd := exec.Command("true")
	fatal.If(t, cmd.Run())
	if _, err := startOf(cmd.Process.Pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that ended: %v", err)
	}
	if alive(cmd.Process.Pid) || !alive(os.Getpid()) {
		t.Error("alive is wrong about this process or one that ended")
	}
}

func TestRootIsFoundFromBelow(t *testing.T) {
	dir, err := root()
	fatal.If(t, err)
	if _, err := os.Stat(filepath.Join(dir, "e2e/cluster/folder.go")); err != nil {
		t.Errorf("%s is not the repository: %v", dir, err)
	}
	t.Chdir(t.TempDir())
	if dir, err := root(); err == nil {
		t.Errorf("outside the repository its root is %s", dir)
	}
}

func TestUntilReturnsTheLastError(t *testing.T) {
	tries := 0
	err := until(t.Context(), "luck", time.Minute, func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("none yet")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	never := errors.New("never")
	if err := until(t.Context(), "luck", time.Millisecond, func(context.Context) error { return never }); !errors.Is(err, never) {
		t.Errorf("in vain: %v", err)
	}
}

func TestRemoveTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "group")
	fatal.If(t, os.MkdirAll(filepath.Join(top, "a/b/c"), 0o755))
	fatal.If(t, removeTree(top))
	if _, err := os.Stat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
	if err := removeTree(top); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestKubeletConfig(t *testing.T) {
	n := &Node{Host: &Host{Name: "node-b"}, site: nodeSites[1]}
	var config struct {
		CgroupRoot string            `json:"cgroupRoot"`
		ClusterDNS []string          `json:"clusterDNS"`
		Eviction   map[string]string `json:"evictionHard"`
	}
	fatal.If(t, yaml.Unmarshal([]byte(n.kubeletConfig(DNS6)), &config))
	if config.CgroupRoot != "/namegate-e2e/node-b" || config.ClusterDNS[0] != DNS6.String() || config.Eviction["nodefs.available"] != "1%" {
		t.Errorf("kubelet's configuration: %+v", config)
	}
}

func TestClusterDNSManifests(t *testing.T) {
	var kinds []string
	for doc := range strings.SplitSeq(clusterDNS, "\n---\n") {
		var o struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
		kinds = append(kinds, o.Kind)
	}
	want := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Service", "Deployment"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The programs and the module that talks to them have to be of one release.
func TestToolVersionsFit(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		fatal.If(t, err)
		return string(text)
	}
	own, tools := read("../../go.mod"), read("tools/kubernetes/go.mod")
	const release = "36.3"
	for _, want := range []struct{ text, line string }{
		{own, "k8s.io/api v0." + release}, {own, "k8s.io/client-go v0." + release},
		{tools, "k8s.io/kubernetes v1." + release}, {tools, "k8s.io/api => k8s.io/api v0." + release},
	} {
		if !strings.Contains(want.text, want.line) {
			t.Errorf("no line %q", want.line)
		}
	}
	for line := range strings.Lines(tools) {
		if name, version, ok := strings.Cut(line, " => "); ok && !strings.HasSuffix(version, " v0."+release+"\n") {
			t.Errorf("%s is replaced by %s", strings.TrimSpace(name), version)
		}
	}
}
