package kube

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/documents"
	"github.com/namegate/namegate/testkit/fatal"
)

// pages are the documents whose commands run on a cluster, in order, with the namespaces that
// these make.
var pages = []struct{ file, namespace string }{
	{"README.md", "try"},
	{"docs/start/cluster.md", "first"},
	{"docs/start/policies.md", "shop"},
	{"docs/start/sandboxes.md", "sandboxes"},
}

// documentImage and webImage are the images of the documents' pods, here the program of the test
// pods. The latter is a server too.
const (
	documentImage = "docker.io/curlimages/curl:8.11.1"
	webImage      = "docker.io/library/nginx:1.29-alpine"
)

// prepared are the beginnings of commands that `make e2e` and the scenarios before ran with
// values of their own.
var prepared = []string{"make ", "install bin/", "helm install "}

// rejection is what curl says of a rejected connection, or of a name that does not resolve.
var rejection = regexp.MustCompile("curl: (refused|prohibited|failed: .* lookup )")

// denial is what curl and ping say of a denied connection.
var denial = regexp.MustCompile("(curl|ping): (refused|prohibited|timeout)")

// followed is in the output of commands that go on: a line of the audit log, or the page's address.
var followed = regexp.MustCompile(`"kind":|http://127\.0\.0\.1:`)

// testDocuments: each command of the first documents ends as its comment says.
func testDocuments(t *testing.T) {
	s := begin(t, "documents")
	fatal.If(t, the.LoadProgram(documentImage, the.Tool("testpod"), []string{"/bin/curl", "/bin/sleep"}))
	for _, p := range pages {
		t.Run(p.file, func(t *testing.T) {
			t.Cleanup(func() { s.kubectl("delete", "namespace", p.namespace, "--ignore-not-found", "--wait=false") })
			s.follow(t, p.file, p.namespace)
		})
	}
}

// follow runs the commands of a document.
func (s *scenario) follow(t *testing.T, file, namespace string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	fatal.If(t, err)
	r := newReader(t, string(text), s, namespace)
	for _, c := range documents.Commands(string(text)) {
		r.run(c)
	}
	if r.ran < 8 {
		t.Errorf("%d commands", r.ran)
	}
}

// reader follows a document in a folder of its own, as the cluster's administrator.
type reader struct {
	*testing.T
	s              *scenario
	dir, namespace string
	path           string // of programs
	ran            int
}

// newReader returns a reader with the document's files in its folder.
func newReader(t *testing.T, text string, s *scenario, namespace string) *reader {
	t.Helper()
	r := &reader{T: t, s: s, dir: t.TempDir(), namespace: namespace}
	top, err := filepath.Abs("../..")
	fatal.If(t, err)
	r.path = strings.Join([]string{filepath.Join(top, "bin"), filepath.Dir(the.Tool("kubectl")), os.Getenv("PATH")}, ":")
	for _, folder := range []string{"bin", "examples", "charts"} {
		fatal.If(t, os.Symlink(filepath.Join(top, folder), filepath.Join(r.dir, folder)))
	}
	for _, b := range documents.Blocks(text) {
		if b.File != "" {
			fatal.If(t, os.WriteFile(filepath.Join(r.dir, b.File), []byte(b.Text), 0o644))
		}
	}
	return r
}

// run runs a command until it ends as it is to, since changes take a moment to come into force.
// A command that follows is to print something and to go on.
func (r *reader) run(c documents.Command) {
	r.Helper()
	for _, p := range prepared {
		if strings.HasPrefix(c.Line, p) {
			return
		}
	}
	r.ran++
	if c.Ends == documents.Follows {
		r.follows(c.Line)
		return
	}
	if strings.Contains(c.Line, "namegate suggest") {
		r.s.eventually(soon, "a line about a denied connection or query", func() error {
			if out, _ := r.bash("kubectl namegate audit --verdict denied,would-deny,refused -n " + r.namespace); !strings.Contains(out, r.namespace+"/") {
				return fmt.Errorf("the audit log is %q", out)
			}
			return nil
		})
	}
	again := strings.Contains(c.Line, " exec ") || strings.Contains(c.Line, " run ") || strings.Contains(c.Line, " namegate explain ") || strings.Contains(c.Line, " namegate status")
	for end := time.Now().Add(soon); ; time.Sleep(100 * time.Millisecond) {
		out, code := r.bash(c.Line)
		good := code == 0
		switch c.Ends {
		case documents.Rejected:
			good = code != 0 && rejection.MatchString(out)
		case documents.Denied:
			good = code != 0 && denial.MatchString(out)
		case documents.Negative:
			good = code == 1
		}
		if good {
			return
		}
		if !again || time.Now().After(end) {
			r.Errorf("%s: exit code %d\n%s", c.Line, code, out)
			return
		}
	}
}

// bash runs a command line and returns its output and its exit code.
func (r *reader) bash(line string) (out string, code int) {
	r.Helper()
	cmd := r.command(line)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (r *reader) command(line string) *exec.Cmd {
	cmd := the.Client(r.s.ctx, "bash", "-c", line)
	cmd.Dir, cmd.Env = r.dir, append(cmd.Env, "PATH="+r.path)
	return cmd
}

// follows runs a command that goes on until it is interrupted.
func (r *reader) follows(line string) {
	r.Helper()
	cmd := r.command("exec " + line)
	out, err := cmd.StdoutPipe()
	fatal.If(r, err)
	fatal.If(r, cmd.Start())
	late := time.AfterFunc(patient, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var text []byte
	for b := make([]byte, 4096); !followed.Match(text) && err == nil; {
		var n int
		n, err = out.Read(b)
		text = append(text, b[:n]...)
	}
	ended := err != nil
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); ended {
		r.Errorf("%s: ended, %v, without an interrupt\n%s", line, err, text)
	}
}
