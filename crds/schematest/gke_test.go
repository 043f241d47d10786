package schematest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGKE: the schema accepts GKE's manifests with another apiVersion.
func TestGKE(t *testing.T) {
	files, err := filepath.Glob("../testdata/gke/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}
	a := kinds()[0].newAdmission(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ours := strings.Replace(string(text), "networking.gke.io/v1alpha1", "namegate.io/v1alpha1", 1)
		if said := a.admit(t, ours); len(said) > 0 {
			t.Errorf("%s: %s", file, strings.Join(said, "\n"))
		}
	}
}
