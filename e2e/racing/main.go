// Command racing prints those of the packages that it is given whose tests may run goroutines
// that share memory, one a line: the others have nothing that the race detector could find.
//
//	go run ./e2e/racing PACKAGE…
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	racing, err := racing(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "racing:", err)
		os.Exit(1)
	}
	for _, p := range racing {
		fmt.Println(p)
	}
}

// listed is a package as go list has it. That of a test binary has the name of the package and
// ".test".
type listed struct {
	ImportPath, Dir, ForTest           string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Deps                               []string
	Module                             *struct{ Main bool }
}

// racing returns the packages, of which the import paths are given, with tests that may race. A package
// without tests is none of them.
func racing(packages []string) (racing []string, err error) {
	if len(packages) == 0 {
		return nil, errors.New("no packages are given")
	}
	cmd := exec.Command("go", append([]string{"list", "-test", "-deps", "-json=ImportPath,Dir,ForTest,GoFiles,TestGoFiles,XTestGoFiles,Deps,Module"}, packages...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	own := map[string]listed{} // of the main module
	binaries := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		switch of, binary := strings.CutSuffix(p.ImportPath, ".test"); {
		case binary:
			binaries[of] = p.Deps
		case p.ForTest == "" && p.Module != nil && p.Module.Main:
			own[p.ImportPath] = p
		}
	}
	starting := map[string]bool{}
	for path, p := range own {
		if starting[path], err = start(p.Dir, p.GoFiles); err != nil {
			return nil, err
		}
	}
	for _, path := range packages {
		deps, tested := binaries[path]
		races := tested && slices.ContainsFunc(deps, func(dep string) bool {
			dep, _, _ = strings.Cut(dep, " ") // as compiled for the test
			return starting[dep]
		})
		if tested && !races {
			p := own[path]
			if races, err = start(p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles)); err != nil {
				return nil, err
			}
		}
		if races {
			racing = append(racing, path)
		}
	}
	return racing, nil
}

// start tells whether one of the files starts goroutines.
func start(dir string, files []string) (bool, error) {
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		if starts(f) {
			return true, nil
		}
	}
	return false, nil
}

// starters are functions and methods that call what they are given, or the rest of a test, in
// other goroutines.
var starters = []string{"Go", "AfterFunc", "Parallel", "RunParallel", "Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS"}

// startingModules are what other modules and the standard library have with goroutines of
// their own, which call this module.
var startingModules = []string{
	"k8s.io/client-go", "github.com/prometheus/client_golang", "github.com/fsnotify/fsnotify", "net/http/httptest", "testing/synctest", "golang.org/x/sync",
}

// starts tells whether a file starts goroutines.
func starts(f *ast.File) (found bool) {
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err == nil && slices.ContainsFunc(startingModules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
			return true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			found = found || slices.Contains(starters, n.Sel.Name)
		}
		return !found
	})
	return found
}
