package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// defaults is the release whose rights are tested: the chart's objects for rights with its default
// values, in a namespace of its own, without agents.
const defaults = "defaults"

// everybody is the rights of every service account, as `kubectl auth can-i --list` names
// them: to ask about itself, and to read the API's discovery.
func everybody(resource string) bool {
	return strings.HasPrefix(resource, "selfsubject") || resource == ""
}

// testRights: by default, the agents' token has exactly the rights that are listed here, in its own
// namespace and in others.
func testRights(t *testing.T) {
	s, other := begin(t, "rights"), begin(t, "rights-other")
	account := "system:serviceaccount:" + s.ns + ":" + defaults + "-namegate"
	objects, err := the.Helm(s.ctx, "template", defaults, "../../charts/namegate", "--namespace", s.ns, "--show-only", "templates/rights.yaml", "--show-only", "templates/console.yaml")
	fatal.If(t, err)
	_, err = the.Kubectl(s.ctx, objects, "apply", "-f", "-")
	fatal.If(t, err)
	t.Cleanup(func() { // those of the cluster and of kube-system
		if _, err := the.Kubectl(s.ctx, objects, "delete", "-f", "-", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	elsewhere := []string{
		"clusterfqdnnetworkpolicies.namegate.io [list watch]",
		"clusterfqdnnetworkpolicies.namegate.io/status [patch]",
		"events.events.k8s.io [create patch]",
		"fqdnnetworkpolicies.namegate.io [list watch]",
		"fqdnnetworkpolicies.namegate.io/status [patch]",
		"nodenetworkpolicies.namegate.io [list watch]",
		"nodenetworkpolicies.namegate.io/status [patch]",
		"endpointslices.discovery.k8s.io [list watch]",
		"namespaces [list watch]",
		"networkpolicies.networking.k8s.io [list watch]",
		"nodes [get list watch]",
		"pods [list watch]",
		"services [list watch]",
		"subjectaccessreviews.authorization.k8s.io [create]",
		"tokenreviews.authentication.k8s.io [create]",
	}
	var consoles []string
	for i := range 16 {
		consoles = append(consoles, fmt.Sprintf("leases.coordination.k8s.io [get] [namegate-console-%x]", i)) // as everybody may
	}
	own := append([]string{
		"daemonsets.apps [list watch] [" + defaults + "-namegate]",
		"leases.coordination.k8s.io [create delete get list patch update watch]",
	}, slices.Concat(consoles, elsewhere)...)
	system := append([]string{"configmaps [get list watch] [extension-apiserver-authentication]"}, elsewhere...)
	for ns, want := range map[string][]string{s.ns: own, other.ns: elsewhere, "kube-system": system} {
		got := s.rights(account, ns)
		slices.Sort(want)
		diff.Error(t, want, got, "in", ns)
	}
	for _, question := range []struct {
		words string
		yes   bool
	}{
		{"list clusternetworkpolicies.policy.networking.k8s.io", false}, // off by default
		{"get secrets", false},
		{"list secrets -A", false},
		{"create pods", false},
		{"create pods/exec", false},
		{"delete pods", false},
		{"update fqdnnetworkpolicies.namegate.io", false},
		{"delete fqdnnetworkpolicies.namegate.io", false},
		{"update clusterfqdnnetworkpolicies.namegate.io", false},
		{"delete clusterfqdnnetworkpolicies.namegate.io", false},
		{"update nodenetworkpolicies.namegate.io", false},
		{"delete nodenetworkpolicies.namegate.io", false},
		{"patch nodes", false},
		{"create networkpolicies.networking.k8s.io", false},
		{"delete networkpolicies.networking.k8s.io", false},
		{"update daemonsets.apps -n " + s.ns, false},
		{"get configmaps -n kube-system", false},
		{"create clusterrolebindings.rbac.authorization.k8s.io", false},
		{"impersonate users", false},
		{"create serviceaccounts/token", false},
		{"create tokenreviews.authentication.k8s.io", true},
		{"create subjectaccessreviews.authorization.k8s.io", true},
		{"list fqdnnetworkpolicies.namegate.io -A", true},
		{"patch fqdnnetworkpolicies.namegate.io --subresource=status", true},
		{"watch pods -A", true},
		{"list networkpolicies.networking.k8s.io -A", true},
	} {
		args := append([]string{"auth", "can-i", "--as=" + account}, strings.Fields(question.words)...)
		out, _ := the.Kubectl(s.ctx, "", args...)
		if got := strings.TrimSpace(out) == "yes"; got != question.yes {
			t.Errorf("can-i %s: %q", question.words, strings.TrimSpace(out))
		}
	}
}

// rights returns the account's rights in a namespace, a line each: resource, verbs, and
// resource names.
func (s *scenario) rights(account, ns string) []string {
	s.Helper()
	out := s.kubectl("auth", "can-i", "--list", "--as="+account, "-n", ns, "--no-headers")
	verbs := map[string][]string{}
	for line := range strings.Lines(out) {
		// RESOURCE [URLS] [NAMES] [VERBS]
		resource, _, _ := strings.Cut(line, " ")
		if everybody(resource) {
			continue
		}
		open := strings.Split(line, "[")
		if len(open) != 4 {
			s.Fatalf("a line of can-i --list: %q", line)
		}
		names := strings.TrimSpace(strings.TrimRight(strings.TrimSpace(open[2]), "]"))
		allowed := strings.Fields(strings.TrimRight(strings.TrimSpace(open[3]), "]"))
		key := resource + "\x00" + names
		verbs[key] = append(verbs[key], allowed...)
	}
	var lines []string
	for key, v := range verbs {
		slices.Sort(v)
		resource, names, _ := strings.Cut(key, "\x00")
		line := fmt.Sprintf("%s %v", resource, slices.Compact(v))
		if names != "" {
			line += fmt.Sprintf(" [%s]", names)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}
