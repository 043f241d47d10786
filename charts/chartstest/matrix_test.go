package chartstest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/testkit/diff"
)

// everything sets each value that adds or changes an object.
const everything = `
image: {repository: registry.test/namegate, tag: v9, pullPolicy: Always, pullSecrets: [first, second]}
cluster: {domain: corp.test, ranges: [10.244.0.0/16, 10.96.0.0/12, "2001:db8:42::/56"]}
newPods: Open
podRanges: [10.244.1.0/24, "2001:db8:42:1::/64"]
nodes: {enabled: true}
clusterNetworkPolicy: {enabled: true}
networkPolicy: {enforce: All}
taint: {enabled: true}
corefile:
  forward: {to: [kube-dns.kube-system, 192.0.2.53, "[2001:db8::53]:5353"], policy: sequential, timeout: 800ms, deadline: 3s, maxFails: 0, healthCheck: 500ms, maxConcurrent: 1000, forceTCP: true}
  zones:
  - {names: [corp.test, partner.test], forward: {to: [192.0.2.54]}}
  - {names: [special.test], forward: {to: ["198.51.100.53:5300"], policy: round_robin}, cache: {maxTTL: 1h30m, minTTL: 1m, negativeTTL: 1m, prefetch: {amount: 0}, serveStale: ""}}
  cache: {maxTTL: 45s, minTTL: 2s, negativeTTL: 0s, prefetch: {amount: 20, within: 2m, percent: 25}, serveStale: 3h, entries: 1000000, size: 64MiB}
  ttl: {minTTL: 3s, maxTTL: 20m}
  follow: false
  bind: [169.254.25.10]
  intercept: [169.254.20.10]
  failclosed: true
  failsafe: ["out 192.0.2.0/24 TCP 443", "nodes 2001:db8::7"]
  search: [corp.test]
  rebindAllow: [{suffix: ingress.test, range: 10.96.7.0/24}]
  nat64: ["2001:db8:64::/96"]
  grantTimeout: 400ms
  hold: 5m
  dataplane: nftables
  mark: "0x80"
  audit: /var/log/namegate/audit.log
  auditFilter: {verdicts: [denied, would-deny, failed], namespaces: [shop, kube-system], sample: 100}
  limits: {queries: 2048, queriesPerPod: 128, ratePerPod: 500, burstPerPod: 100, connections: 512, connectionsPerPod: 32, addresses: 32}
  serverNames: {port: 8443, connections: 2048, connectionsPerPod: 128, hellos: 512, hellosPerPod: 32, grace: 2m}
iptables: {variant: legacy}
apiServer: {host: 192.0.2.1, port: 6443}
metrics: {address: "2001:db8::1", port: 9000, pprof: true, service: {annotations: {a: b}}, serviceMonitor: {enabled: true, interval: 15s, labels: {release: monitoring}}}
dashboards: {enabled: true, labels: {team: blue}, annotations: {folder: Network}}
alerts: {enabled: true, labels: {release: monitoring}, runbooks: "https://runbooks.test/namegate"}
console: {address: "2001:db8::2", port: 9001, readers: [people, "system:serviceaccounts"]}
rollout: {maxSurge: 10%}
nodeSelector: {namegate.test/here: "yes"}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
podAnnotations: {note: x}
podLabels: {team: blue}
seLinuxOptions: {type: spc_t}
extraArgs: [--later=yes]
extraEnv: [{name: GOGC, value: "50"}]
extraVolumes: [{name: log, hostPath: {path: /var/log/namegate, type: DirectoryOrCreate}}]
extraVolumeMounts: [{name: log, mountPath: /var/log/namegate}]
`

// always are the objects of every installation.
var always = []string{
	"ClusterRole/namegate", "ClusterRole/namegate-viewer", "ClusterRoleBinding/namegate", "ConfigMap/namegate", "CustomResourceDefinition/clusterfqdnnetworkpolicies.namegate.io", "CustomResourceDefinition/fqdnnetworkpolicies.namegate.io",
	"CustomResourceDefinition/nodenetworkpolicies.namegate.io", "DaemonSet/namegate", "Role/namegate", "Role/namegate-console", "Role/namegate-events", "Role/namegate-status", "RoleBinding/namegate", "RoleBinding/namegate-authentication", "RoleBinding/namegate-console", "RoleBinding/namegate-events", "Service/namegate-metrics", "ServiceAccount/namegate",
}

// hooked are the objects of the hook.
var hooked = []string{
	"Job/namegate-uninstall",
	"Role/namegate-uninstall", "RoleBinding/namegate-uninstall", "ServiceAccount/namegate-uninstall",
}

// TestObjects: each set of values makes exactly these objects, and each decodes
// strictly into its type.
func TestObjects(t *testing.T) {
	for _, c := range []struct {
		name, values string
		more, less   []string
		noHook       bool
	}{
		{name: "as it comes"},
		{name: "everything", values: everything, more: []string{"ServiceMonitor/namegate", "PrometheusRule/namegate", "ConfigMap/namegate-dashboard"}},
		{name: "no metrics", values: "metrics: {enabled: false}", less: []string{"Service/namegate-metrics"}},
		{name: "the CRDs are somebody else's", values: "crds: {install: false}", less: []string{"CustomResourceDefinition/clusterfqdnnetworkpolicies.namegate.io", "CustomResourceDefinition/fqdnnetworkpolicies.namegate.io", "CustomResourceDefinition/nodenetworkpolicies.namegate.io"}},
		{name: "no console", values: "console: {enabled: false}", less: []string{"Role/namegate-console", "Role/namegate-status", "RoleBinding/namegate-authentication", "RoleBinding/namegate-console"}},
		{name: "a console for whom the administrator binds", values: "console: {readers: []}", less: []string{"RoleBinding/namegate-console"}},
		{name: "no hook", values: "uninstall: {hook: false}", noHook: true},
		{name: "no metadata of pods", values: "tolerations: []\nnodeSelector: null\nresources: {}"},
		{name: "a part of another chart", values: "enabled: true\nglobal: {region: x}"},
		{name: "whole Corefile", values: "corefile: {text: \". {\\n forward . 192.0.2.53\\n}\"}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := render(t, c.values)
			want := slices.DeleteFunc(append(slices.Clone(always), c.more...), func(k string) bool { return slices.Contains(c.less, k) })
			slices.Sort(want)
			diff.Error(t, want, slices.Sorted(maps.Keys(r.objects)), "objects")
			want = hooked
			if c.noHook {
				want = nil
			}
			diff.Error(t, want, slices.Sorted(maps.Keys(r.hooks)), "hooks")
		})
	}
}

// TestNames: a release of another name has names of its own, short enough for
// labels, and its parts find each other.
func TestNames(t *testing.T) {
	for release, want := range map[string]string{
		"namegate":              "namegate",
		"edge":                  "edge-namegate",
		"my-namegate":           "my-namegate",
		strings.Repeat("r", 53): strings.Repeat("r", 52),
	} {
		r := renderAs(t, release, "")
		ds := the[*appsv1.DaemonSet](t, r.objects, "DaemonSet/"+want)
		the[*corev1.ConfigMap](t, r.objects, "ConfigMap/"+want)
		if ds.Spec.Template.Spec.ServiceAccountName != want || ds.Spec.Template.Spec.Volumes[0].ConfigMap.Name != want {
			t.Errorf("%s: the pods have account %s and configuration %s", release, ds.Spec.Template.Spec.ServiceAccountName, ds.Spec.Template.Spec.Volumes[0].ConfigMap.Name)
		}
		if !slices.Contains(ds.Spec.Template.Spec.Containers[0].Args, "--daemonset="+want) {
			t.Errorf("%s: args %q", release, ds.Spec.Template.Spec.Containers[0].Args)
		}
		for k := range ds.Spec.Selector.MatchLabels {
			diff.Equal(t, ds.Spec.Selector.MatchLabels[k], ds.Spec.Template.Labels[k], release, "label", k)
		}
		for key := range r.hooks {
			if name := key[strings.Index(key, "/")+1:]; name != want+"-uninstall" || len(name) > 63 {
				t.Errorf("%s: a hook's object is called %s", release, key)
			}
		}
	}
	ds, _ := render(t, "podLabels: {app.kubernetes.io/name: mine}").agent(t)
	want := map[string]string{"app.kubernetes.io/name": "namegate", "app.kubernetes.io/instance": "namegate", "app.kubernetes.io/component": "agent"}
	if d := cmp.Diff(want, ds.Spec.Template.Labels) + cmp.Diff(want, ds.Spec.Selector.MatchLabels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	r := render(t, "fullnameOverride: gate\nnameOverride: other")
	if ds := the[*appsv1.DaemonSet](t, r.objects, "DaemonSet/gate"); ds.Labels["app.kubernetes.io/name"] != "other" {
		t.Errorf("labels %v", ds.Labels)
	}
}

// TestLint: Helm finds nothing to say, but that the chart has no picture.
func TestLint(t *testing.T) {
	for _, text := range []string{"", everything} {
		l := action.NewLint()
		l.Strict, l.Namespace = true, namespace
		r := l.Run([]string{chartPath}, values(t, text))
		for _, err := range r.Errors {
			t.Error(err)
		}
		for _, m := range r.Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Error(m)
			}
		}
		diff.Equal(t, 1, r.TotalChartsLinted, "charts linted")
	}
}
