package check

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/short"
)

// TestSameAsAdmission: there is an error exactly if an API server with our schema
// refuses the manifest.
func TestSameAsAdmission(t *testing.T) {
	var docs []string
	for _, file := range []string{"admission.yaml", "admission-cluster.yaml", "admission-node.yaml"} {
		text, err := os.ReadFile("../../crds/testdata/" + file)
		fatal.If(t, err)
		docs = append(docs, strings.Split(string(text), "---\n")[1:]...)
	}
	if len(docs) < 50 {
		t.Fatalf("%d cases", len(docs))
	}
	for _, doc := range docs {
		var c struct {
			Name, Manifest string
			Refused        []string
		}
		fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &c))
		m := manifests(t, c.Manifest)
		findings := m.Lint(Options{ClusterDomain: "cluster.local"})
		if refused := slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Error }); refused != (len(c.Refused) > 0) {
			t.Errorf("%s: findings %v, the API server says %q", c.Name, findings, c.Refused)
		}
	}
}

// TestBoundsOfManyPolicies: what single policies do not show.
func TestBoundsOfManyPolicies(t *testing.T) {
	var text strings.Builder
	for i := range 9 {
		fmt.Fprintf(&text, "---\napiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p%d, namespace: shop}\n"+
			"spec:\n  podSelector: {matchLabels: {app: cart}}\n  egress:\n", i)
		for j := range 32 {
			fmt.Fprintf(&text, "  - {matches: [{name: n%d.test}], ports: [{port: %d}]}\n", i*32+j, 1+i*32+j)
		}
	}
	want := []string{"stdin:320: error: policy shop/p8: spec.egress[0]: this rule and 31 more of the policy open nothing for pod shop/with the labels of p0: " +
		"the policies that select it open more than 256 different sets of ports together; give rules the same ports, or a range for several; each rule with serverName: Require counts as one"}
	diff.Error(t, want, lint(t, text.String()))
}

// TestReadPaths: the files of folders that are read, and the messages about others.
func TestReadPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yml", "c.json", "D.YAML", ".hidden.yaml", "notes.txt", "sub/e.yaml", ".git/f.yaml"} {
		path := filepath.Join(dir, name)
		fatal.If(t, os.MkdirAll(filepath.Dir(path), 0o755))
		fatal.If(t, os.WriteFile(path, []byte("{}\n"), 0o644))
	}
	link := filepath.Join(t.TempDir(), "link")
	fatal.If(t, os.Symlink(dir, link))
	for _, c := range []struct {
		paths []string
		deep  bool
		want  string
	}{
		{[]string{dir}, false, "D.YAML a.yaml b.yml c.json"},
		{[]string{link}, false, "D.YAML a.yaml b.yml c.json"},
		{[]string{dir}, true, "D.YAML a.yaml b.yml c.json sub/e.yaml"},
		{[]string{filepath.Join(dir, "notes.txt"), filepath.Join(dir, ".git")}, false, "notes.txt .git/f.yaml"},
	} {
		m, err := Read(c.paths, nil, c.deep)
		fatal.If(t, err)
		var got []string
		for _, file := range m.Files {
			got = append(got, strings.TrimPrefix(strings.TrimPrefix(file, dir+"/"), link+"/"))
		}
		diff.Equal(t, c.want, strings.Join(got, " "), c.paths, "deep", c.deep)
	}
	_, err := Read([]string{filepath.Join(dir, "gone")}, nil, false)
	diff.Fails(t, "there is no file or folder "+filepath.Join(dir, "gone")+"; write the path", err)
}

// TestLinesOfJSON: lines in JSON and in YAML's flow style are the fields' lines.
func TestLinesOfJSON(t *testing.T) {
	const text = `{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "namegate.io/v1alpha1", "kind": "FQDNNetworkPolicy",
		"metadata": {"name": "p"},
		"spec": {
			"podSelector": {},
			"egress": [
				{"matches": [
					{"name": "a.test"},
					{"name": "b c"}]}]}}]}
{"kind": 1
`
	m := New()
	fatal.If(t, m.Add("p.json", []byte(text)))
	var got []string
	for _, f := range m.Lint(Options{ClusterDomain: "cluster.local"}) {
		got = append(got, fmt.Sprintf("%d %s", f.Line, f.Reason))
	}
	diff.Error(t, []string{"9 PartiallyInvalid", "10 Unreadable"}, got)
}

// TestCoversTwin: a pattern that covers another matches all its names.
func TestCoversTwin(t *testing.T) {
	texts := []string{"*", "**", "x.io", "a.x.io", "*.x.io", "**.x.io", "a*.x.io", "*.b.x.io", "**.b.x.io", "a.*.x.io", "*a", "*.*.x.io", "**.*.x.io", "*x.io", "evilx.io"}
	names := []string{"x.io", "a.x.io", "ab.x.io", "b.x.io", "a.b.x.io", "c.a.b.x.io", "evilx.io", "a.evilx.io", "a", "ba", "a.b.c.x.io", "."}
	parse := func(text string) fqdn.Pattern {
		p, err := fqdn.ParsePattern(text)
		fatal.If(t, err)
		return p
	}
	said := 0
	for _, a := range texts {
		for _, b := range texts {
			if !covers(parse(a), parse(b)) {
				continue
			}
			said++
			for _, name := range names {
				n, err := fqdn.ParseName(name)
				fatal.If(t, err)
				if parse(b).Matches(n) && !parse(a).Matches(n) {
					t.Errorf("%s is said to cover %s, and does not match %s", a, b, name)
				}
			}
		}
	}
	for _, pair := range [][2]string{{"*.x.io", "a.x.io"}, {"*.x.io", "a*.x.io"}, {"**.x.io", "*.x.io"}, {"**.x.io", "a.*.x.io"}, {"*", "**.x.io"}} {
		if !covers(parse(pair[0]), parse(pair[1])) {
			t.Errorf("%s is not said to cover %s", pair[0], pair[1])
		}
	}
	if said < 40 {
		t.Errorf("only %d pairs", said)
	}
}

// TestNoOddityInDecodableManifests: the comparison with the types agrees with the decoder.
func TestNoOddityInDecodableManifests(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	values := []string{"x", "7", `"7"`, "{}", "[]", "true", "~", "[x]", "{a: b}", "1.5"}
	fields := []string{"egress", "enforcement", "denied", "dns", "ttl", "egres", "Denied"}
	clean, odd := 0, 0
	rounds := short.Rounds(200, 600, 6_000)
	for range rounds {
		text := "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec:\n  podSelector: {}\n"
		for _, i := range r.Perm(len(fields))[:1+r.IntN(2)] {
			text += "  " + fields[i] + ": " + values[r.IntN(len(values))] + "\n"
		}
		m := manifests(t, text)
		if len(m.Policies) == 1 {
			at := m.Policies[0].place
			if found := at.oddities(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind)); len(found) > 0 {
				t.Fatalf("%v in\n%s", found, text)
			}
			clean++
		} else if m.findings[0].Path != "" {
			odd++
		}
	}
	if clean < rounds/30 || odd < rounds/6 {
		t.Errorf("%d clean, %d odd", clean, odd)
	}
}

const ingress = "apiVersion: policy.networking.k8s.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{}]}\n"

// crowd is cluster policies with more rules than have room together.
func crowd() string {
	var text strings.Builder
	for i := 0; i*64 <= compile.MaxClusterRules; i++ {
		fmt.Fprintf(&text, "---\napiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: p%d}\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [%s]}\n",
			i, strings.Repeat("{action: Pass}, ", 64))
	}
	return text.String()
}

// TestKinds: the kinds of findings of all cases are those of the table in docs/check.md.
func TestKinds(t *testing.T) {
	_, all := cases(t)
	found, texts := map[string]bool{}, []string{crowd(), ingress, strings.Replace(ofNodes, "SETTINGS", "", 1)}
	for _, text := range texts {
		all = append(all, aCase{Manifest: text})
	}
	for _, c := range all {
		m, o := manifests(t, c.Manifest), Options{ClusterDomain: "cluster.local"}
		if c.Log != "" {
			o.Log = logOf(t, m, c.Log)
		}
		tooLong, _ := (&Log{full: true}).findings()
		for _, f := range append(m.Lint(o), tooLong...) {
			found[string(f.Severity)+" "+f.Reason] = true
		}
	}
	m := New()
	fatal.If(t, m.ReadCluster(t.Context(), &served{t: t}, nil, Options{ClusterDomain: "cluster.local"}))
	for _, f := range m.Lint(Options{ClusterDomain: "cluster.local"}) {
		found[string(f.Severity)+" "+f.Reason] = true
	}
	text, err := os.ReadFile("../../docs/check.md")
	fatal.If(t, err)
	_, table, _ := strings.Cut(string(text), "\n## Findings\n")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && len(cells) == 3 && cells[2] != "|\n" {
			documented[cells[1]+" "+strings.Trim(cells[0], "| `")] = true
		}
	}
	if diff := cmp.Diff(documented, found); diff != "" || len(found) < 30 {
		t.Errorf("the document (-), the cases (+): %s", diff)
	}
}

// TestMergedKeys: a rule that merges another one and has a key of its own is checked, in its line.
func TestMergedKeys(t *testing.T) {
	const text = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: merged, namespace: shop}
spec:
  podSelector: {}
  egress:
  - &web
    matches: [{name: www.example.org}]
    ports: [{protocol: TCP, port: 443}]
  - <<: *web
    matches: [{name: api.example.org.}]
`
	if got := lint(t, text); len(got) != 1 || !strings.HasPrefix(got[0], "stdin:11: warning: policy shop/merged: spec.egress[1].matches[0].name: ") {
		t.Errorf("findings %q", got)
	}
	if got := lint(t, text+"    matches: []\n"); len(got) != 1 || !strings.Contains(got[0], "line 12: key \"matches\" already set in map") {
		t.Errorf("a key twice: %q", got)
	}
}
