package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// namegate runs kubectl namegate, and returns its output and its exit code.
func (s *scenario) namegate(args ...string) (out string, code int, said error) {
	s.Helper()
	out, err := the.Kubectl(s.ctx, "", append([]string{"namegate"}, args...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0, nil
	case errors.As(err, &exit):
		return out, exit.ExitCode(), err
	}
	s.Fatal(err)
	return "", 0, nil
}

// told runs kubectl namegate with JSON as its output, which must end with a code.
func told[T any](s *scenario, want int, args ...string) (v T) {
	s.Helper()
	out, code, err := s.namegate(append(args, "-o", "json")...)
	if code != want {
		s.Fatalf("exit code %d, want %d: %v", code, want, err)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		s.Fatalf("%v in %s", err, out)
	}
	return v
}

// refused runs kubectl namegate, which must fail with a code and say a text.
func (s *scenario) refused(want int, text string, args ...string) {
	s.Helper()
	out, code, err := s.namegate(args...)
	if code != want || err == nil || !strings.Contains(err.Error(), text) {
		s.Errorf("kubectl namegate %q: exit code %d, %v, want %d, %s; it printed %s", args, code, err, want, text, out)
	}
}

// withToken writes a kubeconfig for a token.
func (s *scenario) withToken(token string) string {
	s.Helper()
	var config struct {
		Clusters []struct{ Cluster json.RawMessage }
	}
	fatal.If(s, json.Unmarshal([]byte(s.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")), &config))
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": %s}], "users": [{"name": "u", "user": {"token": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": %q}}], "current-context": "c"}`, config.Clusters[0].Cluster, token, s.ns)
	path := filepath.Join(s.TempDir(), "config")
	fatal.If(s, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// viewer makes a service account that may view the scenario's namespace, and returns the path of
// its kubeconfig as soon as the agents know the permission.
func (s *scenario) viewer(name string) string {
	s.Helper()
	s.kubectl("create", "serviceaccount", "-n", s.ns, name)
	s.kubectl("create", "rolebinding", "-n", s.ns, name, "--clusterrole=view", "--serviceaccount="+s.ns+":"+name)
	config := s.withToken(strings.TrimSpace(s.kubectl("create", "token", "-n", s.ns, name)))
	s.eventually(soon, name+"'s permission", func() error { // the ClusterRole is gathered by a controller
		_, code, err := s.namegate("pods", "--kubeconfig="+config)
		if code != 0 {
			return err
		}
		return nil
	})
	return config
}

// names are the names in rows of pods.
func names(rows console.PodRows) (out []string) {
	for _, p := range rows.Pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	slices.Sort(out)
	return out
}

// findsMistake checks the policies of the namespace with rights to view it: a policy that selects no
// pod is found, and cluster policies, which the user may not read, are named as not checked.
func (s *scenario) findsMistake(login string) {
	s.Helper()
	s.run(policy("lost", `{podSelector: {matchLabels: {app: nobody}}, egress: [{matches: [{name: www.example.org}]}]}`))
	report := told[check.Report](s, 0, "check", login)
	if !slices.ContainsFunc(report.Findings, func(f check.Finding) bool {
		return f.Reason == check.SelectsNothing && f.Object == "policy "+s.ns+"/lost"
	}) {
		s.Errorf("the policy that selects nothing is not found: %+v", report)
	}
	if report.Policies != 2 || report.Pods != 2 || report.Errors != 0 || !slices.ContainsFunc(report.Unchecked, func(u check.Unchecked) bool {
		return strings.Contains(u.Why, "you may not list clusterfqdnnetworkpolicies.namegate.io")
	}) {
		s.Errorf("checked: %+v", report)
	}
	s.kubectl("delete", "-n", s.ns, "fqdnnetworkpolicies", "lost")
}

// testConsole: users reach the right node's agent with their own credentials, and see
// exactly the rows that they may see.
func testConsole(t *testing.T) {
	s, other := begin(t, "console"), begin(t, "console-other")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil), policy("one", `{podSelector: {}, egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 80}]}]}`))
	other.run(pod("c", "node-b", nil), policy("one", `{podSelector: {}, egress: [{matches: [{name: www.example.org}]}]}`))
	s.enforced(soon, "a")
	s.enforced(soon, "b")
	ours := []string{"console/a", "console/b"}
	s.eventually(soon, "the consoles", func() error {
		_, code, err := s.namegate("status")
		if code != 0 {
			return err
		}
		return nil
	})
	if out, _, _ := s.namegate("status"); !strings.Contains(out, "node-a") || !strings.Contains(out, "node-b") {
		t.Errorf("the administrator's status:\n%s", out)
	}
	diff.Error(t, ours, names(told[console.PodRows](s, 0, "pods", "-n", s.ns)), "the administrator sees")

	t.Run("token", func(t *testing.T) {
		s := &scenario{T: t, ctx: s.ctx, ns: s.ns}
		alice := "--kubeconfig=" + s.viewer("alice")
		diff.Error(t, ours, names(told[console.PodRows](s, 0, "pods", alice)), "alice sees")
		s.gets("a", "tcp", "www.example.org", 80, works)
		if out, code, err := s.namegate("grants", "a", alice); code != 0 || !strings.Contains(out, "www.example.org") {
			t.Errorf("alice's grants: %d %v\n%s", code, err, out)
		}
		for _, args := range [][]string{{"pods", "-n", other.ns}, {"pods", "-A"}, {"status"}, {"grants", "-n", other.ns}, {"explain", "c", "example.org", "-n", other.ns, "--node", "node-b"}} {
			s.refused(console.ExitForbidden, "", append(args, alice)...)
		}
		s.refused(console.ExitUnknown, "there is no pod console/nobody", "explain", "nobody", "example.org", alice)
		s.findsMistake(alice)
		guessed := "--kubeconfig=" + s.withToken("made-up")
		s.refused(console.ExitForbidden, "log in again", "pods", guessed)
	})
	t.Run("certificate", func(t *testing.T) {
		s := &scenario{T: t, ctx: s.ctx, ns: s.ns}
		// A user of the cluster that has a certificate and few rights.
		carol := "--kubeconfig=" + filepath.Join(filepath.Dir(cluster.AdminConfig), "proxy.conf")
		s.refused(console.ExitForbidden, "", "pods", "-n", s.ns, carol)
		s.kubectl("create", "rolebinding", "-n", s.ns, "carol", "--clusterrole=view", "--user=system:kube-proxy")
		s.eventually(patient, "carol's right", func() error { // a refusal counts for ten seconds
			_, code, err := s.namegate("pods", "-n", s.ns, carol)
			if code != 0 {
				return err
			}
			return nil
		})
		diff.Error(t, ours, names(told[console.PodRows](s, 0, "pods", "-n", s.ns, carol)), "carol sees")
		s.refused(console.ExitForbidden, "", "pods", "-n", other.ns, carol)
	})
	t.Run("strangers", func(t *testing.T) { s.unknownCallers(t) })
	t.Run("forwarded", func(t *testing.T) { s.forwarded(t) })
}

// testPublication: callers believe in the key that an agent publishes, and an agent publishes that
// of its own node alone.
func testPublication(t *testing.T) {
	s := begin(t, "publication")
	t.Run("another key", func(t *testing.T) { s.anotherKey(t) })
	t.Run("publishing", func(t *testing.T) { s.publishing(t) })
}

// unknownCallers calls an agent past kubectl: without credentials, and with such as the
// API server does not know.
func (s *scenario) unknownCallers(t *testing.T) {
	client := http.Client{Timeout: patient, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return the.DialControl(ctx, network, addr)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the test is about the agent's checks
	}}
	address := strings.TrimSpace(s.kubectl("get", "node", "node-a", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`))
	address, _, _ = strings.Cut(address, " ")
	elsewhere := strings.TrimSpace(s.kubectl("create", "token", "-n", s.ns, "default", "--audience=elsewhere.test"))
	for _, path := range []string{console.StatusPath, console.PodsPath, console.GrantsPath, console.AuditPath + "?follow=1", console.ExplainPath + "?pod=console/a&to=example.org"} {
		for name, header := range map[string]string{"nobody": "", "a made-up token": "Bearer made-up", "a password": "Basic YTpi", "a token for somebody else": "Bearer " + elsewhere} {
			req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "https://"+net.JoinHostPort(address, "9954")+path, nil)
			fatal.If(t, err)
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			resp, err := client.Do(req)
			fatal.If(t, err)
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s gets %s from %s", name, resp.Status, path)
			}
		}
	}
}

// anotherKey writes another agent's key where node-a's agent published its own.
func (s *scenario) anotherKey(t *testing.T) {
	published := map[string]string{} // by annotation, with the Lease before
	for i := range 16 {
		lease := fmt.Sprintf("namegate-console-%x", i)
		var l struct {
			Metadata struct{ Annotations map[string]string }
		}
		out, err := the.Kubectl(s.ctx, "", "get", "lease", "-n", namespace, lease, "-o", "json")
		if err != nil {
			continue
		}
		fatal.If(t, json.Unmarshal([]byte(out), &l))
		for key, text := range l.Metadata.Annotations {
			published[key] = lease + " " + text
		}
	}
	lease, right, ok := strings.Cut(published["node-a/namegate-console"], " ")
	_, wrong, okB := strings.Cut(published["node-b/namegate-console"], " ")
	if !ok || !okB {
		t.Fatalf("published is %v", published)
	}
	var of, and struct {
		Addresses []string `json:"addresses"`
		Key       string   `json:"key"`
	}
	fatal.If(t, errors.Join(json.Unmarshal([]byte(right), &of), json.Unmarshal([]byte(wrong), &and)))
	write := func(text string) {
		s.kubectl("annotate", "lease", "-n", namespace, lease, "--overwrite", "node-a/namegate-console="+text)
	}
	of.Key = and.Key
	text, err := json.Marshal(of)
	fatal.If(t, err)
	write(string(text))
	defer write(right)
	s.refused(console.ExitUnreachable, "another key", "status", "--node", "node-a")
}

// publishing tries to publish with the token of node-a's agent: its own node, and
// another's.
func (s *scenario) publishing(t *testing.T) {
	agent := s.kubectl("get", "pods", "-n", namespace, "-l", agentLabels, "--field-selector", "spec.nodeName=node-a", "-o", "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}")
	name, uid, _ := strings.Cut(agent, " ")
	token := s.kubectl("create", "token", "-n", namespace, release, "--bound-object-kind=Pod", "--bound-object-name="+name, "--bound-object-uid="+uid)
	as := "--kubeconfig=" + s.withToken(strings.TrimSpace(token))
	const own, others, third = "namegate-console-3", "namegate-console-6", "namegate-console-0" // by the nodes' names
	annotation := func(lease, node string) string {
		return s.kubectl("get", "lease", "-n", namespace, lease, "-o", "jsonpath={.metadata.annotations."+node+"/namegate-console}")
	}
	published, before := annotation(own, "node-a"), annotation(others, "node-b")
	defer s.kubectl("annotate", "lease", "-n", namespace, own, "--overwrite", "node-a/namegate-console="+published)
	for _, c := range []struct {
		lease, annotation string
		taken             bool
	}{
		{own, "node-a/namegate-console=x", true},
		{own, "node-b/namegate-console=x", false},
		{others, "node-b/namegate-console=x", false},
		{others, "node-a/namegate-console=x", true}, // in a Lease without effect
		{others, "note=x", true},
	} {
		_, err := the.Kubectl(s.ctx, "", "annotate", "lease", as, "-n", namespace, c.lease, "--overwrite", c.annotation)
		if (err == nil) != c.taken || err != nil && !strings.Contains(err.Error(), "of its own node alone") {
			t.Errorf("node-a's agent writes %s into %s: %v", c.annotation, c.lease, err)
		}
	}
	fresh := "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: " + third + ", namespace: " + namespace + ", annotations: {node-b/namegate-console: x}}\n"
	if _, err := the.Kubectl(s.ctx, fresh, "create", as, "-f", "-"); err == nil || !strings.Contains(err.Error(), "of its own node alone") {
		t.Errorf("node-a's agent makes a Lease for node-b: %v", err)
	}
	if now := annotation(others, "node-b"); now != before || before == "" {
		t.Errorf("node-b's console was %s and is %s", before, now)
	}
}

// forwarded asks through a forwarded port, as from where no node is reached.
func (s *scenario) forwarded(t *testing.T) {
	var agent string
	s.eventually(patient, "one agent on node-b", func() error { // and none that ends
		all := strings.Fields(s.kubectl("get", "pods", "-n", namespace, "-l", agentLabels, "--field-selector", "spec.nodeName=node-b", "-o", "name"))
		if len(all) != 1 {
			return fmt.Errorf("%v", all)
		}
		agent = all[0]
		return nil
	})
	ctx, cancel := context.WithCancel(s.ctx)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- the.Follow(ctx, func(line string) {
			if strings.Contains(line, "127.0.0.1:9954") {
				close(ready)
			}
		}, "port-forward", "-n", namespace, agent, "9954", "--address", "127.0.0.1")
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("the forwarding ended: %v", err)
	case <-time.After(patient):
		t.Error("no port is forwarded")
	}
	if out, code, err := s.namegate("pods", "-n", s.ns, "--node", "node-b", "--address", "127.0.0.1:9954"); code != 0 || !strings.Contains(out, "b") {
		t.Errorf("through a forwarded port: %d %v\n%s", code, err, out)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
