package convert_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/convert"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/golden"
)

// fieldFiles returns the manifests of testdata/field: policies in the forms that clusters and repositories
// have.
func fieldFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/field/*.[yj]*")
	fatal.If(t, err)
	if len(files) < 60 {
		t.Fatalf("%d files", len(files))
	}
	return files
}

// TestField: each file becomes its golden file, which has the notes as comments and then the policies.
func TestField(t *testing.T) {
	for _, file := range fieldFiles(t) {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		var r convert.Result
		fatal.If(t, r.Add(filepath.Base(file), text))
		r.Convert()
		var got strings.Builder
		for _, n := range r.Notes {
			got.WriteString("# " + strings.ReplaceAll(n.String(), "\n", " ") + "\n")
		}
		got.Write(r.YAML)
		name := filepath.Base(file)
		golden.Compare(t, "field/"+strings.TrimSuffix(name, filepath.Ext(name)), got.String())
	}
}

// TestFieldOpens: by another reading of the sources and of the results, no name and port is open that the
// source denies, unless a note says wider, and none is denied that it opens, unless one says narrower.
func TestFieldOpens(t *testing.T) {
	compared, open, wider, narrower := 0, 0, 0, 0
	for _, file := range fieldFiles(t) {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		for _, o := range objects(string(text)) {
			if o.at("kind").String() == "HostEndpoint" { // it is no policy
				continue
			}
			source, known := sourceOpens(o)
			asJSON, err := json.Marshal(o.v)
			fatal.If(t, err)
			r := convert.Result{Namespace: "field"}
			fatal.If(t, r.Add("o.json", asJSON))
			r.Convert()
			graded := map[convert.Grade]bool{}
			for _, n := range r.Notes {
				graded[n.Grade] = graded[n.Grade] || !strings.HasSuffix(n.Path, ".ingress")
			}
			if r.Policies == 0 {
				if !graded[convert.Failed] {
					t.Errorf("%s: %s is lost without a note", file, o.at("kind"))
				}
				continue
			} else if !known {
				t.Fatalf("%s: %s is not known to the second reading", file, o.at("kind"))
			}
			result := resultOpens(slices.DeleteFunc(objects(string(r.YAML)), func(p tree) bool { return p.at("kind").String() == "NodeNetworkPolicy" }))
			if !strings.Contains(string(r.YAML), "FQDNNetworkPolicy") {
				continue // TestNodesOpen compares it
			}
			compared++
			for _, name := range names(string(asJSON), string(r.YAML)) {
				for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
					for _, port := range numbers(source, result) {
						was, is := source.allows(name, protocol, port), result.allows(name, protocol, port)
						if is && was {
							open++
						} else if is {
							if wider++; !graded[convert.Wider] {
								t.Errorf("%s: %s %s opens %s %s %d, which it denied, and no note is wider: %v", file, o.at("kind"), o.at("metadata", "name"), name, protocol, port, r.Notes)
							}
						} else if was {
							if narrower++; !graded[convert.Narrower] && !graded[convert.Failed] && !(port == 53 && graded[convert.Dropped]) {
								t.Errorf("%s: %s %s denies %s %s %d, which it opened, and no note is narrower: %v", file, o.at("kind"), o.at("metadata", "name"), name, protocol, port, r.Notes)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d objects; %d names and ports are open in both, %d in the result alone, %d in the source alone", compared, open, wider, narrower)
	if compared < 55 || open < 2000 || wider < 100 || narrower < 100 {
		t.Error("too little is compared")
	}
}

// spelled is a text that may be a name or a pattern.
var spelled = regexp.MustCompile(`[*A-Za-z0-9_-]+([.][*A-Za-z0-9_-]+)+`)

// names returns names around those of texts, and some of no text.
func names(texts ...string) []string {
	all := []string{"foreign.test", "test", "a.b.c.foreign.test", "db.shop.svc.cluster.local", "web-0.db.shop.svc.cluster.local"}
	for _, text := range texts {
		for _, found := range spelled.FindAllString(text, -1) {
			for _, fill := range []string{"", "x", "x.y", "x.y.z", "ab"} {
				name := strings.ToLower(strings.Trim(strings.ReplaceAll(strings.ReplaceAll(found, "**", "*"), "*", fill), "."))
				_, parent, _ := strings.Cut(name, ".")
				all = append(all, name, "q."+name, "q"+name, parent)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(name string) bool { return name == "" || strings.Contains(name, "..") })
}

// numbers returns the ports of lists, the ones around them, and some of no list.
func numbers(lists ...list) []int {
	all := []int{1, 53, 443, 65535}
	for _, l := range lists {
		for _, r := range l.lines {
			for _, p := range r.ports {
				all = append(all, p.first-1, p.first, p.first+1, p.last-1, p.last, p.last+1)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(port int) bool { return port < 1 || port > 65535 })
}
