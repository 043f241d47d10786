package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// verbs are the targets that `make` lists.
func verbs(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

// parse reads the YAML files of a folder strictly; a file needs the fields of the type.
func parse[T any](t *testing.T, pattern string) map[string]T {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file is %s (%v)", pattern, err)
	}
	out := map[string]T{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v T
		if err := yaml.UnmarshalStrict(text, &v); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		out[filepath.Base(file)] = v
	}
	return out
}

// workflow is what a workflow file of GitHub may have here.
type workflow struct {
	Name        string
	On          any
	True        any `json:"true"` // the key `on`, as readers of YAML 1.1 take it
	Permissions map[string]string
	Concurrency map[string]any
	Defaults    map[string]any
	Jobs        map[string]job
}

type job struct {
	RunsOn         string `json:"runs-on"`
	TimeoutMinutes int    `json:"timeout-minutes"`
	Container      struct{ Image, Options string }
	Permissions    map[string]string
	Steps          []struct {
		Uses, Run string
		With      map[string]any
	}
}

// TestWorkflows: the workflows run verbs of the Makefile alone, and all of the tests are among
// them. Actions of GitHub have a major version, and all others a commit, because a tag can move.
func TestWorkflows(t *testing.T) {
	action := regexp.MustCompile(`^(actions/[\w-]+@v\d+|[\w-]+/[\w-]+@[0-9a-f]{40})$`)
	known, seen := verbs(t), map[string]bool{}
	for file, w := range parse[workflow](t, "../.github/workflows/*.yml") {
		if w.Permissions["contents"] != "read" {
			t.Errorf("%s: the jobs have the permissions %v by default", file, w.Permissions)
		}
		for name, j := range w.Jobs {
			if j.RunsOn == "" || j.TimeoutMinutes == 0 || len(j.Steps) == 0 {
				t.Errorf("%s: job %s has no machine, no limit or no steps", file, name)
			}
			for _, s := range j.Steps {
				if s.Uses != "" && !action.MatchString(s.Uses) {
					t.Errorf("%s: job %s uses %s, neither a major version of GitHub's nor a commit", file, name, s.Uses)
				}
				if s.Run == "" {
					continue
				}
				words := strings.Fields(s.Run)
				if len(words) < 2 || words[0] != "make" || !slices.Contains(known, words[1]) {
					t.Errorf("%s: job %s runs %q", file, name, s.Run)
					continue
				}
				seen[words[1]] = true
			}
		}
	}
	for _, verb := range []string{"lint", "test", "test-long", "test-nightly", "e2e", "release"} {
		if !seen[verb] {
			t.Errorf("no workflow runs make %s", verb)
		}
	}
}

// form is an issue form of GitHub.
type form struct {
	Name, Description string
	Labels            []string
	Body              []struct {
		Type, ID    string
		Attributes  struct{ Label, Description, Value, Render string }
		Validations struct{ Required bool }
	}
}

// TestIssueForms: each form has fields that GitHub accepts, and the one of bugs asks for the
// outputs that explain one.
func TestIssueForms(t *testing.T) {
	files, err := filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("issue forms %q (%v)", files, err)
	}
	for _, name := range []string{"bug", "feature"} {
		for file, f := range parse[form](t, "../.github/ISSUE_TEMPLATE/"+name+".yml") {
			ids := map[string]bool{}
			for _, b := range f.Body {
				if b.Type != "markdown" && (ids[b.ID] || b.ID == "" || b.Attributes.Label == "") || !slices.Contains([]string{"markdown", "textarea", "input"}, b.Type) {
					t.Errorf("%s: field %+v", file, b)
				}
				ids[b.ID] = true
			}
			if f.Name == "" || f.Description == "" || name == "bug" && (!ids["status"] || !ids["explain"]) {
				t.Errorf("%s: name %q, description %q, fields %v", file, f.Name, f.Description, ids)
			}
		}
	}
	parse[struct {
		BlankIssues bool                                `json:"blank_issues_enabled"`
		Contacts    []struct{ Name, URL, About string } `json:"contact_links"`
	}](t, "../.github/ISSUE_TEMPLATE/config.yml")
}

// TestMakeVerbs: what documents and templates tell to run with make exists.
func TestMakeVerbs(t *testing.T) {
	known, found := verbs(t), 0
	command := regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			if found++; !slices.Contains(known, m[1]) {
				t.Errorf("%s: make %s does not exist", path, m[1])
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Fatalf("%d commands (%v)", found, err)
	}
}
