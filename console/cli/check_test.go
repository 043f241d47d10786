package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// called runs a command line as the shell does.
func called(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e strings.Builder
	cmd := New("v1")
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	code = Execute(t.Context(), cmd, &e)
	return code, o.String(), e.String()
}

const checked = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: out, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  egress:
  - matches:
    - name: www.example.org
    ports:
    - {protocol: TCP, port: 443}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec: {template: {metadata: {labels: {app: cart}}}}
`

const closed = checked + `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  ingress: # none beside
  - from: [{ipBlock: {cidr: 198.51.100.0/24}}]
---
apiVersion: v1
kind: Pod
metadata: {name: till, namespace: shop}
`

const nodes = `apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata: {name: workers}
spec: {nodeSelector: {matchLabels: {role: worker}}, priority: 1, egress: [{action: Deny}], safeguard: {}}
`

// TestCheckCommand: each way in which it ends, with its exit code.
func TestCheckCommand(t *testing.T) {
	warned := strings.Replace(checked, "name: www.example.org", "name: www.example.org.", 1)
	broken := strings.Replace(checked, "name: www.example.org", `name: "*.example.org"`, 1)
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		out, errs   string // the output; "" for none at all
	}{
		{"clean", checked, []string{"-"}, 0, "1 file, 1 policy, 1 pod: 0 errors, 0 warnings\n", ""},
		{"a warning", warned, []string{"-"}, 0, "stdin:8: warning: policy shop/out: spec.egress[0].matches[0].name: the last dot says nothing; leave it out\n1 file, 1 policy, 1 pod: 0 errors, 1 warning\n", ""},
		{"a warning, strictly", warned, []string{"-", "--strict"}, 1, "stdin:8: warning: ", ""},
		{"an error", broken, []string{"-"}, 1, "stdin:8: error: policy shop/out: spec.egress[0].matches[0].name: ", ""},
		{"allowed", checked, []string{"-", "--pod", "shop/cart", "--to", "www.example.org:443"}, 0,
			"deployment shop/cart to www.example.org:443/tcp: allowed: \"www.example.org\" of shop/out (spec.egress[0].matches[0]) at stdin:8 covers the name on tcp/443;", ""},
		{"denied", checked, []string{"-", "-n", "shop", "--pod", "cart", "--to", "www.example.org:443", "--to", "a.test:80"}, 1, "to a.test:80/tcp: denied: no match of the pod's policies covers the name\n", ""},
		{"labels", checked, []string{"-", "-n", "shop", "--labels", "app=cart,tier=front", "--to", "www.example.org:80"}, 1, "covers www.example.org on tcp/443, and not on tcp/80\n", ""},
		{"labels of another namespace", checked, []string{"-", "--labels", "app=cart", "--to", "www.example.org:80"}, 0, "allowed: no policy selects the pod", ""},
		{"a node", nodes, []string{"-", "--node", "role=worker", "--to", "a.test:80"}, 1, "a node with role=worker to a.test:80/tcp: denied: ", ""},
		{"a pod without labels", checked, []string{"-", "-n", "shop", "--labels", "", "--to", "www.example.org:80"}, 0, "a pod of shop to www.example.org:80/tcp: allowed: no policy selects the pod", ""},
		{"no labels and a pod", "", []string{"-", "--to", "a.test", "--pod", "a", "--labels", ""}, 2, "", "--pod and --labels both say who asks"},
		{"a URL", "", []string{"-", "--to", "https://www.example.org/", "--labels", "a=b"}, 2, "", "is a URL; write its host alone, as in www.example.org:443"},
		{"another node", nodes, []string{"-", "--node", "", "--to", "a.test:80"}, 0, "a node without labels to a.test:80/tcp: allowed: no policy selects the node", ""},
		{"a node and a pod", nodes, []string{"-", "--node", "", "--pod", "a", "--to", "a.test:80"}, 2, "", "--node says who asks, and goes with --to and --from alone"},
		{"labels of a node that are none", nodes, []string{"-", "--node", "worker", "--to", "a.test:80"}, 2, "", "write KEY=VALUE"},
		{"a policy on trial", strings.Replace(checked, "spec:\n", "spec:\n  enforcement: Audit\n", 1), []string{"-", "--enforce", "shop/out", "--to", "a.test:80"}, 1,
			"shop/out enforced: deployment shop/cart to a.test:80/tcp: denied, today allowed: no match of the pod's policies covers the name\n", ""},
		{"a policy on trial that changes nothing", strings.Replace(checked, "spec:\n", "spec:\n  enforcement: Audit\n", 1), []string{"-", "--enforce", "shop/out", "--labels", "app=x", "--to", "a.test:80"}, 0,
			"shop/out enforced: 0 pods, 0 connections compared: 0 denied that pass today, 0 allowed that are denied today\n", ""},
		{"a policy that enforces", checked, []string{"-", "--enforce", "shop/out"}, 5, "", "namegate: --enforce: the policy shop/out is not an Audit policy; no policy of the manifests is\n"},
		{"from an address, denied", closed, []string{"-", "--pod", "shop/cart", "--to", "80", "--from", "192.0.2.1", "--enforce-network-policies"}, 1,
			"192.0.2.1 to deployment shop/cart on 80/tcp: denied: ingress: NetworkPolicies isolate the pod for ingress, and none of their rules allows 192.0.2.1\n", ""},
		{"from an address, allowed", closed, []string{"-", "-n", "shop", "--labels", "app=cart", "--to", "80", "--from", "198.51.100.1", "--enforce-network-policies"}, 0, "NetworkPolicy shop/closed (spec.ingress[0]) at stdin:23 allows 198.51.100.1\n", ""},
		{"not enforced", closed, []string{"-", "--pod", "shop/cart", "--to", "80", "--from", "192.0.2.1"}, 0, "isolates the pod for ingress, and Namegate does not enforce that (networkPolicy.enforce: Selected): another engine may", ""},
		{"from a pod that may not connect", closed, []string{"-", "--pod", "shop/till", "--to", "81", "--to", "icmp", "--from", "cart"}, 1,
			"deployment shop/cart to pod shop/till on icmp: denied: egress: policies isolate the pod for egress, and none of their rules allows shop/till\n", ""},
		{"from an unknown pod", closed, []string{"-", "--pod", "shop/cart", "--to", "80", "--from", "kart"}, 5, "", "--from: no manifest has a pod shop/kart, or a workload that makes it; write one of shop/cart, shop/till, or the address from which it connects\n"},
		{"from a network", "", []string{"-", "--pod", "shop/cart", "--to", "80", "--from", "192.0.2.0/24"}, 2, "", `--from: "192.0.2.0/24" is a network; write one address of it, such as 192.0.2.0`},
		{"from without a port", "", []string{"-", "--pod", "shop/cart", "--from", "till"}, 2, "", "--from asks about a port of a pod or a node; write --pod, --labels or --node, and --to 8080, --to 53/udp or --to icmp"},
		{"from without a pod", "", []string{"-", "--to", "80", "--from", "till"}, 2, "", "write --pod, --labels or --node"},
		{"from to every port", "", []string{"-", "--pod", "shop/cart", "--to", "udp", "--from", "till"}, 2, "", `--to: "udp" has no port, which --from asks about; write one, such as 53/udp`},
		{"from to a name", "", []string{"-", "--pod", "shop/cart", "--to", "a.test:80", "--from", "till"}, 2, "", `--to: "a.test:80" is no port; write 1 to 65535`},
		{"from a pod to a node", nodes, []string{"-", "--node", "", "--to", "80", "--from", "till"}, 5, "", "no manifest has a pod default/till"},
		{"from an address to a node", nodes, []string{"-", "--node", "role=worker", "--to", "80", "--from", "192.0.2.1"}, 0, "no rule of a policy for nodes denies 192.0.2.1", ""},
		{"from on trial", "", []string{"-", "--enforce", "shop/out", "--from", "till"}, 2, "", "leave out --enforce"},
		{"a setting that is none", "", []string{"-", "--enforce-network-policies=All"}, 2, "", "--enforce-network-policies"},
		{"JSON", checked, []string{"-", "-o", "json"}, 0, `"findings": [],`, ""},
		{"YAML", checked, []string{"-", "-o", "yaml"}, 0, "findings: []\n", ""},
		{"no path", "", []string{}, 2, "", "namegate: nothing to check; write the path of a manifest, of a folder, or - for the standard input, or --kube for the policies of a cluster\n"},
		{"another format", "", []string{"-", "-o", "xml"}, 2, "", "-o xml is not known; write -o json, -o yaml, or leave it out"},
		{"a pod without a destination", "", []string{"-", "--pod", "shop/cart"}, 2, "", "write --to with --pod, --labels or --node"},
		{"a destination without a pod", "", []string{"-", "--to", "a.test"}, 2, "", "write --to with --pod, --labels or --node"},
		{"a pod and labels", "", []string{"-", "--to", "a.test", "--pod", "a", "--labels", "a=b"}, 2, "", "--pod and --labels both say who asks"},
		{"labels that are none", "", []string{"-", "--to", "a.test", "--labels", "cart"}, 2, "", "write KEY=VALUE"},
		{"an address", "", []string{"-", "--to", "192.0.2.1:443", "--pod", "a"}, 2, "", `--to: "192.0.2.1:443" is an address`},
		{"two namespaces", "", []string{"-", "--to", "a.test", "--pod", "shop/a", "-n", "pay"}, 2, "", "write NAME, or NAMESPACE/NAME without another --namespace"},
		{"a flag that is none", "", []string{"-", "--strickt"}, 2, "", "unknown flag: --strickt"},
		{"an unknown pod", checked, []string{"-", "--pod", "cart", "--to", "a.test"}, 5, "", "no manifest has a pod default/cart, or a workload that makes it; write one of shop/cart, or its labels with --labels"},
		{"no pods at all", "", []string{"-", "--pod", "cart", "--to", "a.test"}, 5, "", "add the manifest that has it"},
		{"no such path", "", []string{"/nonexistent/p.yaml"}, 1, "", "namegate: there is no file or folder /nonexistent/p.yaml; write the path of a manifest, of a folder, or - for the standard input\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := called(t, c.stdin, append([]string{"check"}, c.args...)...)
			diff.Equal(t, c.code, code, "exit code")
			for _, text := range []struct{ name, got, want string }{{"output", out, c.out}, {"standard error", errs, c.errs}} {
				if !strings.Contains(text.got, text.want) || text.want == "" && text.got != "" {
					t.Errorf("%s %q, want %q", text.name, text.got, text.want)
				}
			}
		})
	}
}

// TestCheckLog: --log compares the names with a log, leaves out lines that are none, and ends with
// exit code 1 only for what cannot be read.
func TestCheckLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	fatal.If(t, os.WriteFile(path, []byte(checked), 0o644))
	const line = `{"v":1,"kind":"dns","time":"2026-05-01T12:00:00Z","node":"n","verdict":"allowed","pod":{"namespace":"shop","name":"cart-1","ip":"10.0.0.1"},` +
		`"question":{"name":"NAME","type":"A","class":"IN"},"answers":[{"address":"192.0.2.1","granted":true}],"rcode":"NOERROR","protocol":"udp"}` + "\n"
	used, other := strings.Replace(line, "NAME", "www.example.org", 1), strings.Replace(line, "NAME", "a.test", 1)
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		out, errs   string
	}{
		{"resolved", used, []string{path, "--log", "-"}, 0, "1 file, 1 policy, 1 pod: 0 errors, 0 warnings\n", ""},
		{"not resolved", other, []string{path, "--log", "-"}, 0, ":8: warning: policy shop/out: spec.egress[0].matches[0].name: no pod of namespace shop queried it in the log", ""},
		{"not resolved, strictly", other, []string{path, "--log", "-", "--strict"}, 1, "no pod of namespace shop queried it", ""},
		{"shared", used + other, []string{path, "--log", "-"}, 0, "address 192.0.2.1 of www.example.org also answered for a.test", ""},
		{"lines that are none", "x\n" + used, []string{path, "--log", "-"}, 0, "0 errors, 0 warnings\n", "namegate: 1 line was left out"},
		{"a log that is not there", "", []string{path, "--log", "/nonexistent/l"}, 1, "", "namegate: there is no file /nonexistent/l; write the path of an audit log, - for the standard input, or leave --log out\n"},
		{"a log that is a folder", "", []string{path, "--log", filepath.Dir(path)}, 1, "the log (without lines) has no answered query", "cannot be read to its end"},
		{"manifests and a log", "", []string{"-", "--log", "-"}, 2, "", "the standard input cannot be both manifests and a log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := called(t, c.stdin, append([]string{"check"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
		})
	}
}

// TestCheckReadsFolders, and their subfolders only with the flag.
func TestCheckReadsFolders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "sub/b.yaml"} {
		path := filepath.Join(dir, name)
		fatal.If(t, os.MkdirAll(filepath.Dir(path), 0o755))
		fatal.If(t, os.WriteFile(path, []byte(strings.ReplaceAll(checked, "name: out", "name: "+strings.TrimSuffix(filepath.Base(name), ".yaml"))), 0o644))
	}
	if _, out, _ := called(t, "", "check", dir); !strings.HasPrefix(out, "1 file, 1 policy, 1 pod: ") {
		t.Error(out)
	}
	if _, out, _ := called(t, "", "check", dir, "-R"); !strings.HasPrefix(out, "2 files, 2 policies, 1 pod: ") {
		t.Error(out)
	}
}
