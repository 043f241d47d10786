package schematest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// admissionCase is one document of the file of cases.
type admissionCase struct {
	Name     string   `json:"name"`
	Refused  []string `json:"refused"`
	Manifest string   `json:"manifest"`
}

func (k kind) readCases(t *testing.T) []admissionCase {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + k.cases)
	if err != nil {
		t.Fatal(err)
	}
	var cases []admissionCase
	for _, doc := range strings.Split(string(text), "\n---\n")[1:] {
		var c admissionCase
		if err := yaml.UnmarshalStrict([]byte(doc), &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}

func TestAdmission(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		a := k.newAdmission(t)
		for _, c := range k.readCases(t) {
			t.Run(c.Name, func(t *testing.T) {
				said := a.admit(t, c.Manifest)
				if len(c.Refused) == 0 && len(said) > 0 {
					t.Errorf("refused:\n%s\n%s", c.Manifest, strings.Join(said, "\n"))
				}
				for _, want := range c.Refused {
					if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
						t.Errorf("no message says %q, but:\n%s", want, strings.Join(said, "\n"))
					}
				}
			})
		}
	})
}

// TestDefaults: the API server sets the defaults.
func TestDefaults(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte("spec: "+k.least), &object); err != nil {
			t.Fatal(err)
		}
		k.newAdmission(t).fillIn(object)
		for path, want := range k.defaults {
			at := object["spec"]
			for part := range strings.SplitSeq(path, ".") {
				at = at.(map[string]any)[part]
			}
			if at != want {
				t.Errorf("%s is %v, want %v", path, at, want)
			}
		}
	})
}
