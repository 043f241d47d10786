package smoke

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// stage is a namespace of one scenario's own.
type stage struct {
	*cluster.Cluster
	t         *testing.T
	namespace string
}

// newStage makes a namespace; it is deleted with all that is in it at
// the end.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Cluster: real, t: t, namespace: fmt.Sprintf("t-%d", time.Now().UnixNano())}
	fatal.If(t, s.CreateNamespace(t.Context(), s.namespace))
	t.Cleanup(func() {
		// The context of the test is over here.
		if _, err := real.Kubectl(context.Background(), "", "delete", "namespace", "--wait=false", s.namespace); err != nil {
			t.Error(err)
		}
	})
	return s
}

// kubectl runs kubectl in the stage's namespace; it has to succeed.
func (s *stage) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.Kubectl(s.t.Context(), "", append([]string{"-n", s.namespace}, args...)...)
	fatal.If(s.t, err)
	return out
}

// apply applies manifests to the stage's namespace; they have to be accepted.
func (s *stage) apply(manifests string) {
	s.t.Helper()
	if _, err := s.Kubectl(s.t.Context(), manifests, "-n", s.namespace, "apply", "-f", "-"); err != nil {
		s.t.Fatal(err)
	}
}

// start makes pods, each written as "NAME NODE" or "NAME NODE LABEL=VALUE,…",
// and waits until they are ready. Each is an echo server on port 8080.
func (s *stage) start(pods ...string) {
	s.t.Helper()
	var manifests, names []string
	for _, words := range pods {
		f := strings.Fields(words)
		labels := "name: " + f[0]
		if len(f) > 2 {
			labels += ", " + strings.ReplaceAll(strings.ReplaceAll(f[2], "=", ": "), ",", ", ")
		}
		names = append(names, "pod/"+f[0])
		manifests = append(manifests, podManifest(f[0], f[1], labels))
	}
	s.apply(strings.Join(manifests, "---\n"))
	s.kubectl(append([]string{"wait", "--for=condition=Ready", "--timeout=300s"}, names...)...)
}

func podManifest(name, node, labels string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {%[3]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: pod, image: %[4]q, imagePullPolicy: Never, args: [serve, %[1]s, "8080"]}
`, name, node, labels, cluster.PodImage)
}

func (s *stage) pod(name string) cluster.PodRef {
	return cluster.PodRef{Namespace: s.namespace, Name: name}
}

// addr returns a pod's address of a family, 4 or 6.
func (s *stage) addr(pod string, family int) string {
	s.t.Helper()
	index := 0
	if family == 6 {
		index = 1
	}
	return s.kubectl("get", "pod", pod, "-o", fmt.Sprintf("jsonpath={.status.podIPs[%d].ip}", index))
}

// dial connects from a pod and asserts the outcome.
func (s *stage) dial(pod, network, to string, want probe.Class) probe.Dialled {
	s.t.Helper()
	got, err := s.Dial(s.t.Context(), s.pod(pod), network, to)
	fatal.If(s.t, err)
	diff.Equal(s.t, want, got.Class, "pod", pod, "to", network, to, got.Error)
	return got
}

// get looks a name up in a pod, connects to what the answer says at once, and
// asserts the outcome.
func (s *stage) get(pod, network, name string, port int, want probe.Class) probe.Got {
	s.t.Helper()
	got, err := s.Get(s.t.Context(), s.pod(pod), network, name, port)
	fatal.If(s.t, err)
	diff.Equal(s.t, want, got.Class, "pod", pod, "to", network, name, "port", port, got)
	return got
}
