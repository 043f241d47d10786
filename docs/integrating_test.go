package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program is the source of some folders, without tests.
type program struct {
	constants map[string]ast.Expr
	files     []*ast.File
}

// parseProgram reads the Go files below folders of the repository.
func parseProgram(t *testing.T, folders ...string) program {
	t.Helper()
	p := program{constants: map[string]ast.Expr{}}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			p.files = append(p.files, file)
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.ValueSpec); ok {
					for i := range min(len(s.Names), len(s.Values)) {
						p.constants[s.Names[i].Name] = s.Values[i]
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// text returns the value of an expression: a literal, a constant, or a constant before or behind another.
// It is "" for all else.
func (p program) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
		return e.Value
	case *ast.Ident:
		return p.text(p.constants[e.Name])
	case *ast.SelectorExpr:
		return p.text(p.constants[e.Sel.Name])
	case *ast.BinaryExpr:
		return p.text(e.X) + p.text(e.Y)
	case *ast.CallExpr: // netip.MustParseAddr("…")
		if len(e.Args) == 1 {
			return p.text(e.Args[0])
		}
	}
	return ""
}

// baseChains lists the base chains that the program makes: type, hook and priority, by values of nft.Hook.
func (p program) baseChains() (out []string) {
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			var of []ast.Expr
			if lit, ok := n.(*ast.CompositeLit); ok {
				if typ, ok := lit.Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "Hook" && len(lit.Elts) == 3 {
					for _, e := range lit.Elts {
						of = append(of, e.(*ast.KeyValueExpr).Value)
					}
				}
			}
			if len(of) > 0 && p.text(of[0]) != "" {
				out = append(out, p.text(of[0])+" "+p.text(of[1])+" "+p.text(of[2]))
			}
			return true
		})
	}
	slices.Sort(out)
	return out
}

// jumps lists the rules in chains of iptables that are not the program's, of those that it renders in a golden file.
func jumps(t *testing.T, family string) (out []string) {
	t.Helper()
	file, err := os.ReadFile("../enforcer/dataplane/xtables/testdata/" + family + ".rules")
	if err != nil {
		t.Fatal(err)
	}
	table := ""
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "*"); is {
			table = name
		}
		chain, rule, _ := strings.Cut(strings.TrimPrefix(line, "-A "), " ")
		if strings.HasPrefix(line, "-A ") && !strings.HasPrefix(chain, "NAMEGATE-") {
			out = append(out, table+" "+chain+" "+strings.TrimPrefix(rule, "-j "))
		}
	}
	slices.Sort(out)
	return out
}

// rowsBelow returns the cells of the rows of each table below a heading, without quotes of code.
func rowsBelow(t *testing.T, text, heading string) (out [][]string) {
	t.Helper()
	_, section, found := strings.Cut(text, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatalf("the document has no section %s", heading)
	}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
			}
			out = append(out, cells)
		}
	}
	return out
}

// TestIntegrating: docs/integrating.md has the hooks, priorities, marks and names of the code, and no
// other hooks.
func TestIntegrating(t *testing.T) {
	file, err := os.ReadFile("integrating.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	code := parseProgram(t, "kernel", "enforcer", "agent/handover", "agent/placement", "status", "console/entry", "crds/v1alpha1", "policy/api/cnp", "policy/api/netpol")
	var chains, documented []string
	for _, row := range rowsBelow(t, text, "Hooks") {
		switch len(row) {
		case 6:
			chains = append(chains, strings.Join(row[2:5], " "))
		case 5:
			chains = append(chains, strings.Join(row[1:4], " "))
		case 4:
			documented = append(documented, strings.Join(row[:3], " "))
		}
	}
	slices.Sort(chains)
	slices.Sort(documented)
	if d := cmp.Diff(code.baseChains(), chains); d != "" || len(chains) < 8 {
		t.Errorf("base chains of nftables (-code +document): %s", d)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if d := cmp.Diff(jumps(t, family), documented); d != "" || len(documented) == 0 {
			t.Errorf("jumps of iptables, %s (-code +document): %s", family, d)
		}
	}
	for section, names := range map[string][]string{
		"Marks":               {"DefaultMark", "DefaultCandidate", "DefaultAccepted"},
		"Names in the kernel": {"TableName", "NetTableName", "ChainPrefix", "dummyName", "sendName", "redirectName", "LogGroup", "namespaceLock", "EntriesPrefix", "GrantsPrefix", "PeersPrefix"},
		"Ports and addresses": {"firstServing4", "lastServing4", "firstServing6", "lastServing6"},
		"API objects":         {"Taint", "IgnoreLabel", "ConfirmedAnnotation", "UninstallingAnnotation", "ConditionAccepted", "ConditionEnforced", "ConditionDNSBlocked", "LeaderLease", "ManagedBy", "NodeLeasePrefix", "LeasePrefix", "controllerName"},
	} {
		_, body, _ := strings.Cut(text, "\n## "+section+"\n")
		body, _, _ = strings.Cut(body, "\n## ")
		for _, name := range names {
			if value := code.text(code.constants[name]); value == "" || !strings.Contains(body, "`"+value) && !strings.Contains(body, " "+value) {
				t.Errorf("%s: the document does not have the value %q of %s", section, value, name)
			}
		}
	}
}
