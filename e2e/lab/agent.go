package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/namegate/namegate/testkit/audittest"
)

// Agent is a real agent on a lab's node, with its own folder.
type Agent struct {
	// Dir holds manifests/, Corefile, audit.log, agent.log and the socket.
	Dir string
	// Env is added to the environment of the next processes. NoXtables: to them the kernel has
	// neither ipset nor xtables.
	Env       []string
	NoXtables bool
	// StandBy is how long the next agent of Upgrade stands by.
	StandBy time.Duration

	lab    *Lab
	binary string
	args   []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	end    chan error
	killed int // each may have left a cut line
}

// Status is what the tests read of the agent's status.
type Status struct {
	InSync      bool   `json:"inSync"`
	Waiting     int    `json:"waiting"`
	Snapshot    uint64 `json:"snapshot"`
	Dataplane   struct{ Name, Reason string }
	Failing     string `json:"failing"`
	BrokenFiles []struct{ File, Reason string }
	Problems    []struct{ Object, Reason, Path, Message string }
	Enforcer    struct {
		Selected     int      `json:"selected"`
		Grants       int      `json:"grants"`
		Homeless     []string `json:"homeless"`
		Unseen       []string `json:"unseen"`
		Intercepting bool     `json:"intercepting"`
		Repairs      uint64   `json:"repairs"`
		Deviations   []struct{ Object, Error string }
		Evicted      uint64 `json:"evictedGrants"`
		FullestRule  int    `json:"fullestRuleEntries"`
	} `json:"enforcer"`
	Audit struct {
		Written uint64 `json:"written"`
		Dropped uint64 `json:"dropped"`
	} `json:"audit"`
	Proxy struct {
		Queries         uint64 `json:"queries"`
		Coalesced       uint64 `json:"coalesced"`
		RateLimited     uint64 `json:"rateLimited"`
		RateSilenced    uint64 `json:"rateSilenced"`
		ShedPod         uint64 `json:"shedPod"`
		ShedAll         uint64 `json:"shedAll"`
		ShedConnections uint64 `json:"shedConnections"`
		SelfQueries     uint64 `json:"selfQueries"`
		Panics          uint64 `json:"panics"`
		InFlight        int64  `json:"inFlight"`
	} `json:"proxy"`
}

// NewAgent prepares an agent that is not started. The Corefile gets the path of
// the audit log in place of AUDIT, and the lab's dataplane unless it names one.
func (l *Lab) NewAgent(binary, dir, corefile string, args ...string) (*Agent, error) {
	a := &Agent{Dir: dir, lab: l, binary: binary, args: args}
	if err := os.MkdirAll(a.path("manifests"), 0o755); err != nil {
		return nil, err
	}
	text := strings.ReplaceAll(corefile, "AUDIT", a.path("audit.log"))
	if !dataplaneLine.MatchString(text) {
		text = withDataplane(text, cmp.Or(l.Dataplane, Dataplane()))
	}
	return a, os.WriteFile(a.path("Corefile"), []byte(text), 0o644)
}

func (a *Agent) path(name string) string { return filepath.Join(a.Dir, name) }

// Socket is the path of the agent's socket.
func (a *Agent) Socket() string { return a.path("agent.sock") }

// Command returns a command of the agent's binary, to be run on the node.
func (a *Agent) Command(args ...string) *exec.Cmd { return exec.Command(a.binary, args...) }

// Start starts the agent and waits until it intercepts.
func (a *Agent) Start() error {
	if err := a.Begin(); err != nil {
		return err
	}
	return a.WaitFor("interception", func(s Status) bool { return s.InSync && s.Enforcer.Intercepting })
}

// Upgrade starts the next agent, which stands by, then ends this one, and returns
// when the next intercepts.
func (a *Agent) Upgrade() error {
	a.mu.Lock()
	cmd, end := a.cmd, a.end
	a.mu.Unlock()
	said := strings.Count(a.wholeLog(), standsBy)
	if err := a.Begin("--standby"); err != nil {
		return err
	}
	for until := time.Now().Add(startLimit); strings.Count(a.wholeLog(), standsBy) == said; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			return fmt.Errorf("the next agent does not stand by\n%s", a.Log())
		}
	}
	time.Sleep(a.StandBy)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-end:
		if err != nil {
			return fmt.Errorf("the last agent: %w\n%s", err, a.Log())
		}
	case <-time.After(startLimit):
		_ = cmd.Process.Kill()
		return fmt.Errorf("the last agent did not end\n%s", a.Log())
	}
	return a.WaitFor("interception", func(s Status) bool { return s.InSync && s.Enforcer.Intercepting })
}

// standsBy is what an agent says that waits for another's end.
const standsBy = "standing by until it ends"

// Begin starts the agent's process and waits for nothing.
func (a *Agent) Begin(further ...string) error {
	log, err := os.OpenFile(a.path("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	args := append([]string{"agent", "--source", "dir:" + a.path("manifests"), "--config", a.path("Corefile"), "--socket", a.Socket()}, a.args...)
	args = append(args, further...)
	cmd := a.Command(args...)
	cmd.Stdout, cmd.Stderr = log, log
	// Each lab has its own lock for the legacy tables: they are per namespace,
	// the lock's usual path is not.
	cmd.Env = append(append(os.Environ(), "XTABLES_LOCKFILE="+XtablesLock(a.lab.Node.Name)), a.Env...)
	if err := a.onNode(cmd.Start); err != nil {
		log.Close()
		return err
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait(); log.Close() }()
	a.mu.Lock()
	a.cmd, a.end = cmd, end
	a.mu.Unlock()
	return nil
}

// onNode calls what starts a process, where the agent's processes start.
func (a *Agent) onNode(start func() error) error {
	if a.NoXtables {
		return withoutXtables(func() error { return a.lab.Node.Do(start) })
	}
	return a.lab.Node.Do(start)
}

// Run runs a program with what the agent's processes have, and returns what it printed.
func (a *Agent) Run(program string, args ...string) (string, error) {
	cmd := exec.Command("env", slices.Concat(a.Env, []string{program}, args)...)
	var out []byte
	err := a.onNode(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return strings.TrimSpace(string(out)), err
}

// startLimit bounds every wait for the agent, which is seldom longer than a second.
const startLimit = 2 * time.Minute

// WaitFor asks for the status until it satisfies a condition.
func (a *Agent) WaitFor(what string, ok func(Status) bool) error {
	var last Status
	var err error
	for until := time.Now().Add(startLimit); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		select {
		case end := <-a.end:
			a.end <- end
			return fmt.Errorf("the agent ended while waiting for %s: %w\n%s", what, end, a.Log())
		default:
		}
		if last, err = a.Status(); err == nil && ok(last) {
			return nil
		}
	}
	return fmt.Errorf("waiting for %s: status %+v, %w\n%s", what, last, err, a.Log())
}

// Log returns the end of what the agent printed.
func (a *Agent) Log() string {
	text := a.wholeLog()
	return text[max(0, len(text)-8000):]
}

func (a *Agent) wholeLog() string {
	text, err := os.ReadFile(a.path("agent.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Get asks the agent over its socket.
func (a *Agent) Get(path string) (*http.Response, error) {
	client := http.Client{Timeout: Limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", a.Socket())
		},
	}}
	return client.Get("http://agent" + path)
}

// Status asks the agent for its status.
func (a *Agent) Status() (Status, error) {
	var s Status
	resp, err := a.Get("/v1/status")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// Apply writes files into the folder of manifests, removes those with empty
// text, and waits until a snapshot with them is in force.
func (a *Agent) Apply(files map[string]string) error {
	before, err := a.Status()
	if err != nil {
		return err
	}
	if err := a.Write(files); err != nil {
		return err
	}
	return a.WaitFor("the manifests", func(s Status) bool { return s.InSync && s.Waiting == 0 && s.Snapshot > before.Snapshot })
}

// Write is Apply for an agent that does not run, or that is not to be waited for.
func (a *Agent) Write(files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(a.path("manifests"), name)
		if text == "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			continue
		}
		// The agent sees a file as it was or as it is, and one change.
		next := a.path("next")
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Rename(next, path); err != nil {
			return err
		}
	}
	return nil
}

// Signal sends the agent a signal.
func (a *Agent) Signal(s syscall.Signal) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmd.Process.Signal(s)
}

// Stop ends the agent with a signal, waits for its end and checks what it logged.
func (a *Agent) Stop(s syscall.Signal) error {
	a.mu.Lock()
	cmd, end := a.cmd, a.end
	a.cmd = nil
	a.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-end:
		end <- err // for who waits for the agent to come up
		if s == syscall.SIGKILL {
			a.wasKilled()
			err = nil
		}
		return errors.Join(err, a.CheckAudit())
	case <-time.After(startLimit):
		_ = cmd.Process.Kill()
		return errors.New("the agent did not end")
	}
}

func (a *Agent) wasKilled() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.killed++
}

// CheckAudit returns an error that shows the first line of the audit log that is not
// of the published schema. The lab has one log, also where agents follow each other.
func (a *Agent) CheckAudit() error {
	schema, err := audittest.Strict()
	if err != nil {
		return err
	}
	return schema.Files(a.path("audit.log"), a.kills())
}

func (a *Agent) kills() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.killed
}

// AuditLines returns the lines logged so far, decisions and flows, each of which must be of the
// published schema. It leaves cut lines out, as many as agents were killed.
func (a *Agent) AuditLines() ([]map[string]any, error) {
	path, killed := a.path("audit.log"), a.kills()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	schema, err := audittest.Strict()
	if err != nil {
		return nil, err
	}
	if err := schema.Log(bytes.NewReader(text), killed); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written, as for Schema.Log
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			if killed > 0 {
				continue
			}
			return nil, fmt.Errorf("audit line %q: %w", line, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// Manifest renders a v1 Pod for a lab's pod.
func (p *Pod) Manifest(namespace, name string, labels map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: %s\n  name: %s\n  uid: %s\n", namespace, name, p.Name)
	if len(labels) > 0 {
		b.WriteString("  labels:\n")
		for k, v := range labels {
			fmt.Fprintf(&b, "    %s: %q\n", k, v)
		}
	}
	fmt.Fprintf(&b, "spec:\n  containers: []\nstatus:\n  phase: Running\n  podIPs:\n  - ip: %s\n  - ip: %s\n", p.Addr4, p.Addr6)
	return b.String()
}

// Use lets the next process of the agent be another binary, with other arguments
// beyond those that every agent of the lab has.
func (a *Agent) Use(binary string, args ...string) { a.binary, a.args = binary, args }
