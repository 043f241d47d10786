package chartstest

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestPrivileges: the agent has three capabilities, four mounts, and no more, whatever the
// values say.
func TestPrivileges(t *testing.T) {
	for _, text := range []string{"", strings.ReplaceAll(everything, "extraVolume", "#")} {
		text = strings.Replace(text, "  audit: /var/log/namegate/audit.log\n", "", 1)
		ds, c := render(t, text).agent(t)
		spec := ds.Spec.Template.Spec
		if !spec.HostNetwork || spec.HostPID || spec.HostIPC || len(spec.InitContainers) > 0 || len(c.Ports) > 0 {
			t.Errorf("hostNetwork %v, hostPID %v, hostIPC %v, %d init containers, ports %v", spec.HostNetwork, spec.HostPID, spec.HostIPC, len(spec.InitContainers), c.Ports)
		}
		s := c.SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || *s.RunAsUser != 0 {
			t.Errorf("security context %+v", s)
		}
		if spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.SeccompProfile != nil {
			t.Error("no seccomp profile of the runtime")
		}
		want := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"}}
		diff.Error(t, want, s.Capabilities)
		host := map[string]string{}
		for _, v := range spec.Volumes {
			if v.HostPath != nil {
				host[v.HostPath.Path] = string(*v.HostPath.Type)
			}
		}
		diff.Error(t, map[string]string{"/run/namegate": "DirectoryOrCreate", "/var/lib/cni/results": "DirectoryOrCreate", "/run/xtables.lock": "FileOrCreate"}, host, "host paths")
		mounts := map[string]string{}
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = m.Name + m.SubPath
		}
		diff.Error(t, map[string]string{"/etc/namegate": "config", "/run/own": "own", "/run/namegate": "socket", "/run/xtables.lock": "xtables-lock", "/var/lib/cni/results": "cni-results"}, mounts, "mounts")
	}
}

// TestRollout: the next agent stands by before the last ends, on every node, and nothing
// evicts one.
func TestRollout(t *testing.T) {
	ds, c := render(t, "").agent(t)
	u := ds.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate.MaxSurge.String() != "1" || u.RollingUpdate.MaxUnavailable.String() != "0" {
		t.Errorf("update strategy %+v", u)
	}
	spec := ds.Spec.Template.Spec
	if spec.PriorityClassName != "system-node-critical" || spec.DNSPolicy != corev1.DNSDefault || *spec.TerminationGracePeriodSeconds != 45 {
		t.Errorf("priority %s, DNS %s, %d s to end", spec.PriorityClassName, spec.DNSPolicy, *spec.TerminationGracePeriodSeconds)
	}
	diff.Error(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, spec.Tolerations, "tolerations")
	if c.Resources.Limits.Cpu().Sign() != 0 || c.Resources.Limits.Memory().Sign() == 0 || c.Resources.Requests.Cpu().Sign() == 0 {
		t.Errorf("resources %+v", c.Resources)
	}
	ds, _ = render(t, everything).agent(t)
	diff.Equal(t, "10%", ds.Spec.UpdateStrategy.RollingUpdate.MaxSurge.String(), "maxSurge")
	diff.Equal(t, 15+120, *ds.Spec.Template.Spec.TerminationGracePeriodSeconds, "beyond the grace of connections")
}

// TestProbes: three probes by the agent's own program and its own socket, which
// cannot mistake the other agent of the node for it.
func TestProbes(t *testing.T) {
	_, c := render(t, "").agent(t)
	if !slices.Contains(c.Args, "--health-socket=/run/own/health.sock") {
		t.Errorf("args %q", c.Args)
	}
	for ask, p := range map[string][]*corev1.Probe{"--live": {c.StartupProbe, c.LivenessProbe}, "--ready": {c.ReadinessProbe}} {
		for _, p := range p {
			if want := []string{"/usr/local/bin/namegate", "health", "--socket", "/run/own/health.sock", ask}; p == nil || p.Exec == nil || !slices.Equal(p.Exec.Command, want) {
				t.Errorf("%s: %+v", ask, p)
			}
		}
	}
}

// TestArguments: what each value says to the agent.
func TestArguments(t *testing.T) {
	base := []string{
		"agent", "--source=kube", "--node-name=$(NODE_NAME)", "--namespace=$(POD_NAMESPACE)", "--pod-name=$(POD_NAME)", "--daemonset=namegate",
		"--config=/etc/namegate/Corefile", "--socket=/run/namegate/agent.sock", "--health-socket=/run/own/health.sock", "--standby",
		"--console-addr=[$(HOST_IP)]:9954", "--console-addr=[127.0.0.1]:9954",
		"--cni-results=/var/lib/cni/results",
	}
	node := "--metrics-addr=[$(HOST_IP)]:9953"
	for _, c := range []struct {
		values string
		want   []string
	}{
		{"", []string{"--new-pods=Hold", node}},
		{"newPods: Open", []string{"--new-pods=Open", node}},
		{"podRanges: [10.1.0.0/16, '2001:db8::/64']", []string{"--new-pods=Hold", "--pod-range=10.1.0.0/16", "--pod-range=2001:db8::/64", node}},
		{"nodes: {enabled: true}", []string{"--new-pods=Hold", "--nodes", node}},
		{"clusterNetworkPolicy: {enabled: true}", []string{"--new-pods=Hold", "--cluster-network-policy", node}},
		{"networkPolicy: {enforce: Selected}", []string{"--new-pods=Hold", node}},
		{"networkPolicy: {enforce: All}", []string{"--new-pods=Hold", "--enforce-network-policies", node}},
		{"cluster: {watchNodes: true}", []string{"--new-pods=Hold", node}},
		{"cluster: {watchNodes: null}", []string{"--new-pods=Hold", node}}, // as with the values of an earlier release
		{"cluster: {watchNodes: false, ranges: [10.0.0.0/8]}", []string{"--new-pods=Hold", "--watch-nodes=false", node}},
		{"{cluster: {watchNodes: false}, corefile: {text: '. {}'}}", []string{"--new-pods=Hold", "--watch-nodes=false", node}},
		{"taint: {enabled: true}", []string{"--new-pods=Hold", "--clear-taint", node}},
		{"metrics: {enabled: false}", []string{"--new-pods=Hold"}},
		{"metrics: {address: 0.0.0.0, port: 9000}", []string{"--new-pods=Hold", "--metrics-addr=[0.0.0.0]:9000"}},
		{"metrics: {pprof: true}", []string{"--new-pods=Hold", node, "--pprof"}},
		{"metrics: {enabled: false, pprof: true}", []string{"--new-pods=Hold"}},
		{"iptables: {variant: nft}", []string{"--new-pods=Hold", node, "--iptables=nft"}},
		{"extraArgs: [--a=b, '--c=\"d\"']", []string{"--new-pods=Hold", node, "--a=b", "--c=\"d\""}},
	} {
		_, agent := render(t, c.values).agent(t)
		diff.Error(t, append(slices.Clone(base), c.want...), agent.Args, c.values)
		for _, arg := range agent.Args {
			for _, name := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(arg, -1) {
				if !slices.ContainsFunc(agent.Env, func(e corev1.EnvVar) bool { return e.Name == name[1] }) {
					t.Errorf("%s: %s is in the arguments and not in the environment", c.values, name[1])
				}
			}
		}
	}
}

// TestAPIServer: agents and hook get another address together.
func TestAPIServer(t *testing.T) {
	find := func(c corev1.Container) map[string]string {
		out := map[string]string{}
		for _, e := range c.Env {
			if strings.HasPrefix(e.Name, "KUBERNETES_") {
				out[e.Name] = e.Value
			}
		}
		return out
	}
	for text, want := range map[string]map[string]string{
		"":                                   {},
		"apiServer: {host: 'api.corp.test'}": {"KUBERNETES_SERVICE_HOST": "api.corp.test", "KUBERNETES_SERVICE_PORT": "6443"},
		"apiServer: {host: '2001:db8::1', port: 16443}": {"KUBERNETES_SERVICE_HOST": "2001:db8::1", "KUBERNETES_SERVICE_PORT": "16443"},
	} {
		r := render(t, text)
		_, agent := r.agent(t)
		hook := the[*batchv1.Job](t, r.hooks, "Job/namegate-uninstall").Spec.Template.Spec.Containers[0]
		for who, c := range map[string]corev1.Container{"the agent": agent, "the hook": hook} {
			diff.Error(t, want, find(c), text, who)
		}
	}
}

// TestImage: a digest wins over a tag, and without either it is the chart's.
func TestImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0f", 32)
	for text, want := range map[string]string{
		"image: {tag: v9}": "ghcr.io/namegate/namegate:v9",
		"image: {repository: 'registry.test:5000/ng'}": "registry.test:5000/ng:" + appVersion(t),
		"image: {tag: v9, digest: '" + digest + "'}":   "ghcr.io/namegate/namegate@" + digest,
	} {
		r := render(t, text)
		_, agent := r.agent(t)
		hook := the[*batchv1.Job](t, r.hooks, "Job/namegate-uninstall").Spec.Template.Spec.Containers[0]
		if agent.Image != want || hook.Image != want {
			t.Errorf("%s: agent %s, hook %s, want %s", text, agent.Image, hook.Image, want)
		}
	}
}

// TestHook: the hook ends by itself, needs nothing of the node, and is not
// started where a node does not work.
func TestHook(t *testing.T) {
	r, err := install(t, "namegate", "uninstall: {deadlineSeconds: 30}")
	fatal.If(t, err)
	weights := map[string]int{}
	for _, h := range r.Hooks {
		weights[h.Kind] = h.Weight
		if len(h.Events) != 1 || h.Events[0] != "pre-delete" || len(h.DeletePolicies) != 2 {
			t.Errorf("%s %s: %v, %v", h.Kind, h.Name, h.Events, h.DeletePolicies)
		}
	}
	if !(weights["ServiceAccount"] < weights["Role"] && weights["Role"] < weights["RoleBinding"] && weights["RoleBinding"] < weights["Job"]) {
		t.Errorf("the order of the hooks: %v", weights)
	}
	j := the[*batchv1.Job](t, render(t, "uninstall: {deadlineSeconds: 30}").hooks, "Job/namegate-uninstall")
	spec := j.Spec.Template.Spec
	if *j.Spec.ActiveDeadlineSeconds != 30 || *j.Spec.BackoffLimit > 5 || spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the job may last: %+v", j.Spec)
	}
	c := spec.Containers[0]
	if s := c.SecurityContext; *s.Privileged || len(s.Capabilities.Add) > 0 || !*spec.SecurityContext.RunAsNonRoot || len(spec.Volumes) > 0 {
		t.Errorf("the job is given more than it needs: %+v", spec)
	}
	for _, tol := range spec.Tolerations {
		diff.Equal(t, corev1.TaintEffectNoSchedule, tol.Effect, "the job may start where a node does not work", tol)
	}
	diff.Equal(t, "namegate-uninstall", spec.ServiceAccountName, "the job runs as")
	if want := []string{"uninstall", "--namespace=" + namespace, "--daemonset=namegate"}; !slices.Equal(c.Args, want) {
		t.Errorf("args %q, want %q", c.Args, want)
	}
}

// TestFlags: the program has every flag that the chart writes.
func TestFlags(t *testing.T) {
	program := filepath.Join(t.TempDir(), "namegate")
	if out, err := exec.Command("go", "-C", "../..", "build", "-buildvcs=false", "-o", program, "./cmd/namegate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	known := func(command string) []string {
		out, err := exec.Command(program, command, "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return regexp.MustCompile(`--[a-z][a-z-]*`).FindAllString(string(out), -1)
	}
	values := strings.Replace(everything, "extraArgs: [--later=yes]", "", 1)
	r := render(t, values)
	_, agent := r.agent(t)
	hook := the[*batchv1.Job](t, r.hooks, "Job/namegate-uninstall").Spec.Template.Spec.Containers[0]
	calls := map[string][]string{}
	for _, args := range [][]string{
		agent.Args, hook.Args, agent.StartupProbe.Exec.Command[1:], agent.LivenessProbe.Exec.Command[1:], agent.ReadinessProbe.Exec.Command[1:],
	} {
		calls[args[0]] = append(calls[args[0]], args[1:]...)
	}
	for _, command := range slices.Sorted(maps.Keys(calls)) {
		flags := known(command)
		for _, arg := range calls[command] {
			if flag, _, _ := strings.Cut(arg, "="); strings.HasPrefix(flag, "--") && !slices.Contains(flags, flag) {
				t.Errorf("namegate %s has no %s", command, flag)
			}
		}
	}
}

// TestNoCNIResults: without the folder the agent neither mounts nor reads one.
func TestNoCNIResults(t *testing.T) {
	ds, c := render(t, "cniResults: ''").agent(t)
	if slices.ContainsFunc(c.Args, func(a string) bool { return strings.Contains(a, "cni") }) {
		t.Errorf("args %q", c.Args)
	}
	if slices.ContainsFunc(ds.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cni-results" }) {
		t.Error("the folder is mounted")
	}
}
