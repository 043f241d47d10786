package chartstest

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const document = "../../docs/install.md"

// tables returns the rows of every table under a heading of the document, a table
// for each, cells trimmed, without the head.
func tables(t *testing.T, heading string) (out [][][]string) {
	t.Helper()
	text, err := os.ReadFile(document)
	fatal.If(t, err)
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %s", document, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	inTable := false
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		switch {
		case !inTable:
			out, inTable = append(out, nil), true
		case !strings.HasPrefix(cells[0], "---"):
			out[len(out)-1] = append(out[len(out)-1], cells)
		}
	}
	return out
}

// code returns the words of a cell that are set as code.
func code(cell string) (out []string) {
	for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestSchemaKnowsValues: the schema has each value of the document, and no other except
// those that Helm itself hands to a chart.
func TestSchemaKnowsValues(t *testing.T) {
	text, err := os.ReadFile(chartPath + "/values.schema.json")
	fatal.If(t, err)
	var schema struct{ Properties map[string]any }
	fatal.If(t, yaml.Unmarshal(text, &schema))
	delete(schema.Properties, "global")
	delete(schema.Properties, "enabled")
	documented := map[string]bool{}
	for _, row := range tables(t, "## Values")[0] {
		for _, name := range code(row[0]) {
			top, _, _ := strings.Cut(name, ".")
			documented[top] = true
		}
	}
	diff.Error(t, slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(schema.Properties)), "documented, and in the schema")
}

// TestDocumentedRights: agents and hook have exactly the rights that the document lists,
// with and without those that depend on values.
func TestDocumentedRights(t *testing.T) {
	tables := tables(t, "## Permissions")
	for _, c := range []struct {
		text string
		on   map[string]bool
	}{
		{"", map[string]bool{"console.enabled": true}},
		{"console: {enabled: false}", nil},
		{"taint: {enabled: true}", map[string]bool{"console.enabled": true, "taint.enabled": true}},
		{"clusterNetworkPolicy: {enabled: true}", map[string]bool{"console.enabled": true, "clusterNetworkPolicy.enabled": true}},
		{everything, map[string]bool{"console.enabled": true, "taint.enabled": true, "clusterNetworkPolicy.enabled": true}},
	} {
		r := render(t, c.text)
		for i, who := range []struct {
			objects map[string]object
			name    string
		}{{r.objects, "namegate"}, {r.hooks, "namegate-uninstall"}} {
			var want []string
			for _, row := range tables[i] {
				if value := code(row[3]); len(value) > 0 && !c.on[value[0]] {
					continue
				}
				for _, resource := range code(row[0]) {
					want = append(want, fmt.Sprintf("%s [%s] %s", resource, row[1], strings.ReplaceAll(row[2], "`", "")))
				}
			}
			slices.Sort(want)
			diff.Error(t, want, rights(t, who.objects, who.name), who.name, "with the values", c.text, "documented, and rendered")
		}
	}
}

// rights lists an account's rights, in the words of the document. Roles without a binding
// to it do not count, and a binding to another account is an error.
func rights(t *testing.T, objects map[string]object, account string) []string {
	t.Helper()
	var out []string
	inside := the[*rbacv1.RoleBinding](t, objects, "RoleBinding/"+account)
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: namespace}}
	if d := cmp.Diff(subject, inside.Subjects); d != "" || inside.Namespace != namespace {
		t.Errorf("bound to another account: %s", d)
	}
	if bound, ok := objects["ClusterRoleBinding/"+account].(*rbacv1.ClusterRoleBinding); ok {
		diff.Error(t, subject, bound.Subjects, "bound to")
		for _, rule := range the[*rbacv1.ClusterRole](t, objects, bound.RoleRef.Kind+"/"+bound.RoleRef.Name).Rules {
			out = append(out, words(rule, "cluster")...)
		}
	}
	for _, rule := range the[*rbacv1.Role](t, objects, inside.RoleRef.Kind+"/"+inside.RoleRef.Name).Rules {
		out = append(out, words(rule, "its namespace")...)
	}
	if b, ok := objects["RoleBinding/"+account+"-events"].(*rbacv1.RoleBinding); ok {
		role := the[*rbacv1.Role](t, objects, "Role/"+b.RoleRef.Name)
		if d := cmp.Diff(subject, b.Subjects); d != "" || b.Namespace != "kube-system" || role.Namespace != "kube-system" {
			t.Errorf("bound to another account or in another namespace: %+v", b)
		}
		for _, rule := range role.Rules {
			out = append(out, words(rule, "kube-system")...)
		}
	}
	// A Role that every cluster has; the Kubernetes documentation has its rules.
	if b, ok := objects["RoleBinding/"+account+"-authentication"].(*rbacv1.RoleBinding); ok {
		if d := cmp.Diff(subject, b.Subjects); d != "" || b.Namespace != "kube-system" || b.RoleRef.Kind != "Role" || b.RoleRef.Name != "extension-apiserver-authentication-reader" {
			t.Errorf("bound to something else: %+v", b)
		}
		out = append(out, "configmaps [get, list, watch] kube-system, extension-apiserver-authentication only")
	}
	slices.Sort(out)
	return out
}

func words(rule rbacv1.PolicyRule, where string) (out []string) {
	if len(rule.ResourceNames) > 0 {
		where += ", " + strings.Join(rule.ResourceNames, ", ") + " only"
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			kind, sub, _ := strings.Cut(resource, "/")
			if group != "" {
				kind += "." + group
			}
			if sub != "" {
				kind += "/" + sub
			}
			out = append(out, fmt.Sprintf("%s [%s] %s", kind, strings.Join(slices.Sorted(slices.Values(rule.Verbs)), ", "), where))
		}
	}
	return out
}

// TestNotes: the notes have the release's own names, and a hint disappears when it is
// followed.
func TestNotes(t *testing.T) {
	r := renderAs(t, "edge", "")
	for _, want := range []string{
		"kubectl -n namegate-system rollout status daemonset/edge-namegate\n", "kubectl -n namegate-system exec daemonset/edge-namegate -- namegate status",
		"logs daemonset/edge-namegate -f", "cluster.ranges is empty", "set podRanges",
	} {
		diff.Has(t, want, r.notes, "the notes")
	}
	if all := render(t, everything).notes; strings.Contains(all, "is empty") || strings.Contains(all, "set podRanges") || strings.Contains(all, "logs ") || !strings.Contains(all, "agent-not-ready") {
		t.Errorf("the notes of other values:\n%s", all)
	}
	_, manifest, _ := strings.Cut(r.notes, "<<'EOF'\n")
	manifest, _, _ = strings.Cut(manifest, "  EOF\n")
	var policy v1alpha1.FQDNNetworkPolicy
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll("\n"+manifest, "\n  ", "\n")), &policy); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	if len(policy.Spec.Egress) != 1 || policy.APIVersion != "namegate.io/v1alpha1" {
		t.Errorf("the policy of the notes: %+v", policy)
	}
}

// TestDocumentedMessages: the refusals that the document quotes are Helm's own.
func TestDocumentedMessages(t *testing.T) {
	text, err := os.ReadFile(document)
	fatal.If(t, err)
	_, err = install(t, "namegate", "newPods: hold\nfoo: 1\ncluster: {ranges: [10.244.0.0]}")
	if err == nil {
		t.Fatal("accepted")
	}
	_, quoted, _ := strings.Cut(string(text), "```text\n")
	quoted, _, _ = strings.Cut(quoted, "```")
	for line := range strings.Lines(quoted) {
		diff.Has(t, strings.TrimSpace(line), err.Error(), "documented for Helm")
	}
}

// TestDocumentedCache: the values that the document shows make the caches that it
// speaks of.
func TestDocumentedCache(t *testing.T) {
	text, err := os.ReadFile(document)
	fatal.If(t, err)
	_, section, _ := strings.Cut(string(text), "\n### The cache\n")
	_, shown, _ := strings.Cut(section, "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	c := config(t, shown)
	for name, want := range map[string][2]time.Duration{"cluster.local": {30 * time.Second, 5 * time.Second}, "example.org": {time.Hour, 30 * time.Second}} {
		n, err := fqdn.ParseName(name)
		fatal.If(t, err)
		zone := slices.IndexFunc(c.Zones, func(z corefile.Zone) bool { return n.HasSuffix(z.Name) })
		if got := c.Zones[zone].Cache; got == nil || [2]time.Duration{got.MaxTTL, got.NegativeTTL} != want || got.ServeStale != time.Hour {
			t.Errorf("%s is kept by %+v, want %v", name, got, want)
		}
	}
}
