package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/console/web"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/webtest"
)

// TestUI: the command prints the page's address, the page asks the agent at the socket about the
// namespace, and the command ends with its context.
func TestUI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	fatal.If(t, err)
	agent := webtest.NewNode("node-1", compile.Input{}, time.Now).Agent(serve.Everything{})
	namespaces := make(chan string, 100)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == console.GrantsPath {
			namespaces <- r.URL.Query().Get("namespace")
		}
		resp, err := agent.Ask(r.Context(), r.URL.Path, r.URL.Query())
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, resp.Body)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })

	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	cmd, ended := New("v1"), make(chan int, 1)
	var errs bytes.Buffer
	cmd.SetArgs([]string{"ui", "--socket", socket, "-n", "shop"})
	cmd.SetOut(in)
	cmd.SetErr(&errs)
	go func() { ended <- Execute(ctx, cmd, &errs) }()
	address, err := bufio.NewReader(out).ReadString('\n')
	fatal.If(t, err)
	get := func(path string, into any) {
		t.Helper()
		resp, err := webtest.Get(t.Context(), http.DefaultClient, address, path)
		fatal.If(t, err)
		defer resp.Body.Close()
		diff.MustEqual(t, http.StatusOK, resp.StatusCode, path, resp.Status)
		fatal.If(t, json.NewDecoder(resp.Body).Decode(into))
	}
	var session web.Session
	get("/api/session", &session)
	if session.Namespace != "shop" || session.Version != "v1" || session.Context != "" {
		t.Errorf("%+v", session)
	}
	events, err := webtest.Get(t.Context(), http.DefaultClient, address, "/api/events")
	fatal.If(t, err)
	defer events.Body.Close()
	stream := json.NewDecoder(events.Body)
	for agents := (web.Agents{}); len(agents.Agents) == 0 || agents.Agents[0].State != web.Well; { // the test's time ends a feed that never is
		fatal.If(t, stream.Decode(&struct{ Data *web.Agents }{&agents}))
	}
	get("/api/grants", &web.Grants{})
	diff.Equal(t, "shop", <-namespaces, "the agent is asked about the namespace")
	stop()
	if code := <-ended; code != 0 || !strings.Contains(errs.String(), "Ctrl-C ends the page") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}
