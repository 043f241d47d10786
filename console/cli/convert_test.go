package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestConvertCommand: policies go to the standard output, notes to standard error; the exit
// code is 1 where a person has to look.
func TestConvertCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, pattern string) string {
		path := filepath.Join(dir, name)
		fatal.If(t, os.WriteFile(path, []byte("apiVersion: networking.gke.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {}, egress: [{matches: [{pattern: '"+pattern+"'}]}]}\n"), 0o600))
		return path
	}
	for _, c := range []struct {
		args, out, errs string
		code            int
	}{
		{write("plain.yaml", "*.example.com"), "- pattern: '*.example.com'", "", 0},
		{write("deep.yaml", "**.example.com"), "- pattern: '*.example.com'", "deep.yaml:1: changed: FQDNNetworkPolicy p: spec.egress[0].matches[0]: ", 0},
		{write("all.yaml", "**"), "- pattern: '*'", "all.yaml:1: wider: ", 1},
		{write("bad.yaml", "a b"), "podSelector: {}", "bad.yaml:1: failed: ", 1},
		{write("named.yaml", "*.example.com") + " -n shop", "  namespace: shop\n", "", 0},
		{filepath.Join(dir, "none.yaml"), "", "there is no file or folder", 1},
		{"", "", "nothing to convert", 2},
	} {
		out, errs, code := ran(t, New("v1"), append([]string{"convert"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || (errs == "") != (c.errs == "") {
			t.Errorf("%s: exit code %d\n%s\n%s", c.args, code, out, errs)
		}
	}
}
