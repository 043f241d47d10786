package chartstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestConsoleAddresses: where agents listen for people, and that the node's address
// is known to them when it is needed.
func TestConsoleAddresses(t *testing.T) {
	for _, c := range []struct {
		values string
		want   []string
		host   bool
	}{
		{"", []string{"[$(HOST_IP)]:9954", "[127.0.0.1]:9954"}, true},
		{"console: {port: 9001}", []string{"[$(HOST_IP)]:9001", "[127.0.0.1]:9001"}, true},
		{"console: {address: 0.0.0.0}", []string{"[0.0.0.0]:9954"}, true},
		{"console: {address: '2001:db8::1'}", []string{"[2001:db8::1]:9954"}, true},
		{"console: {address: 192.0.2.1}\nmetrics: {enabled: false}", []string{"[192.0.2.1]:9954"}, false},
		{"metrics: {enabled: false}", []string{"[$(HOST_IP)]:9954", "[127.0.0.1]:9954"}, true},
		{"console: {enabled: false}", nil, true},
		{"console: {enabled: false}\nmetrics: {enabled: false}", nil, false},
		{"console: {port: 9953}\nmetrics: {port: 9954}", []string{"[$(HOST_IP)]:9953", "[127.0.0.1]:9953"}, true},
		{"console: {enabled: false, port: 9953}", nil, true},
	} {
		_, agent := render(t, c.values).agent(t)
		var got []string
		for _, a := range agent.Args {
			if at, ok := strings.CutPrefix(a, "--console-addr="); ok {
				got = append(got, at)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.values, got, c.want)
		}
		diff.Equal(t, c.host, slices.ContainsFunc(agent.Env, func(e corev1.EnvVar) bool { return e.Name == "HOST_IP" }), c.values, "HOST_IP is there")
	}
}

// TestConsoleReaders: the groups may get the sixteen Leases of the consoles, and
// nothing else: no other Lease, which holds findings about everybody's pods.
func TestConsoleReaders(t *testing.T) {
	for text, want := range map[string][]string{"": {"system:authenticated"}, everything: {"people", "system:serviceaccounts"}} {
		r := render(t, text)
		role := the[*rbacv1.Role](t, r.objects, "Role/namegate-console")
		rule := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}}
		for i := range 16 {
			rule.ResourceNames = append(rule.ResourceNames, fmt.Sprintf("namegate-console-%x", i))
		}
		if d := cmp.Diff([]rbacv1.PolicyRule{rule}, role.Rules); d != "" || role.Namespace != namespace {
			t.Errorf("the Role, in %s (-want +got):\n%s", role.Namespace, d)
		}
		b := the[*rbacv1.RoleBinding](t, r.objects, "RoleBinding/namegate-console")
		var groups []string
		for _, s := range b.Subjects {
			if s.Kind != "Group" || s.APIGroup != rbacv1.GroupName || s.Namespace != "" {
				t.Errorf("subject %+v", s)
			}
			groups = append(groups, s.Name)
		}
		if !slices.Equal(groups, want) || b.RoleRef.Kind != "Role" || b.RoleRef.Name != role.Name || b.Namespace != namespace {
			t.Errorf("bound are %q in %s to %+v", groups, b.Namespace, b.RoleRef)
		}
	}
}

// TestStatusRole: a Role lets people read the Leases of nodes, and no binding refers to it.
func TestStatusRole(t *testing.T) {
	r := render(t, "")
	role := the[*rbacv1.Role](t, r.objects, "Role/namegate-status")
	want := []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"list"}}}
	if d := cmp.Diff(want, role.Rules); d != "" || role.Namespace != namespace {
		t.Errorf("rules in %s (-want +got):\n%s", role.Namespace, d)
	}
	for name, o := range r.objects {
		if b, is := o.(*rbacv1.RoleBinding); is && b.RoleRef.Name == role.Name {
			t.Errorf("%s binds it", name)
		}
	}
}

// TestViewers: viewers of a namespace may see its policies, and change none.
func TestViewers(t *testing.T) {
	role := the[*rbacv1.ClusterRole](t, render(t, "console: {enabled: false}").objects, "ClusterRole/namegate-viewer")
	want := []rbacv1.PolicyRule{{APIGroups: []string{"namegate.io"}, Resources: []string{"fqdnnetworkpolicies"}, Verbs: []string{"get", "list", "watch"}}}
	diff.Error(t, want, role.Rules, "rules")
	if role.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" || role.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "" {
		t.Errorf("labels %v", role.Labels)
	}
}

// TestConsoleNotes: the notes name the command if it works.
func TestConsoleNotes(t *testing.T) {
	for text, want := range map[string]bool{"": true, "console: {enabled: false}": false} {
		if notes := render(t, text).notes; strings.Contains(notes, "See it work:\n\n  kubectl namegate status ") != want || !strings.Contains(notes, "exec daemonset/namegate -- namegate status") {
			t.Errorf("with %q the notes say:\n%s", text, notes)
		}
	}
}

// TestPublishersAreBound: where tokens name their pod's node, the agents' account may
// write its own node's annotation alone; the rule is tried in a real cluster.
func TestPublishersAreBound(t *testing.T) {
	for _, c := range []struct {
		kubernetes, values string
		there              bool
	}{
		{"v1.29.9", "", false}, {"v1.30.0", "", true}, {"v1.36.3-vendor.7", "", true}, {"v1.36.3", "console: {enabled: false}", false},
	} {
		r, err := installOn(t, c.kubernetes, "edge", c.values)
		fatal.If(t, err)
		objects := objectsOf(t, r).objects
		p, there := objects["ValidatingAdmissionPolicy/edge-namegate-console"].(*admissionv1.ValidatingAdmissionPolicy)
		b, bound := objects["ValidatingAdmissionPolicyBinding/edge-namegate-console"].(*admissionv1.ValidatingAdmissionPolicyBinding)
		if there != c.there || bound != c.there {
			t.Errorf("%+v: there %v, bound %v", c, there, bound)
		}
		if !there || !bound {
			continue
		}
		if want := "request.userInfo.username == 'system:serviceaccount:" + namespace + ":edge-namegate'"; p.Spec.MatchConditions[0].Expression != want || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("it is about %s", p.Spec.MatchConditions[0].Expression)
		}
		if b.Spec.PolicyName != p.Name || b.Spec.MatchResources.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != namespace || !slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
			t.Errorf("the binding is %+v", b.Spec)
		}
	}
}
