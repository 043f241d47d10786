package scenarios

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// application is a program that requests URLs in its own way: one row of the table in
// docs/semantics.md.
type application struct {
	row      string // the row's first cell
	needs    []string
	build    string // a command; DIR is the output folder
	argv     string
	defaults bool // the pod's policy has the default ttl
}

const (
	javaLoop        = "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp DIR -Djdk.httpclient.allowRestrictedHeaders=connection"
	javaForEver     = javaLoop + " -Djava.security.properties=DIR/for-ever"
	pythonRequests  = "/usr/lib/python3/dist-packages/requests"
	applicationPort = 8000
)

// applicationFile is a file of the applications.
func applicationFile(name string) string { return filepath.Join("testdata", "applications", name) }

var (
	javac        = "javac -d DIR " + applicationFile("HttpLoop.java")
	applications = []application{
		{row: "OpenJDK 17, `HttpClient` with keep-alive, DNS cache of 30 s (its default)", needs: []string{"java", "javac"}, build: javac, argv: javaLoop + " HttpLoop", defaults: true},
		{row: "OpenJDK 17, `HttpClient` without keep-alive, DNS cache of 30 s (its default)", needs: []string{"java", "javac"}, build: javac, argv: javaLoop + " HttpLoop close", defaults: true},
		{row: "OpenJDK 17, `HttpClient` with keep-alive, `networkaddress.cache.ttl=-1`", needs: []string{"java", "javac"}, build: javac, argv: javaForEver + " HttpLoop"},
		{row: "OpenJDK 17, `HttpClient` without keep-alive, `networkaddress.cache.ttl=-1`", needs: []string{"java", "javac"}, build: javac, argv: javaForEver + " HttpLoop close"},
		{row: "Go, `http.Client`", needs: []string{"go"}, build: "go build -o DIR/pooled ./" + applicationFile("pooled"), argv: "DIR/pooled"},
		{row: "Python, `requests.Session`", needs: []string{pythonRequests}, argv: "/usr/bin/python3 " + applicationFile("session.py")},
		{row: "Node.js, `http.Agent` with `keepAlive`", needs: []string{"node"}, argv: "node " + applicationFile("agent.js")},
		{row: "connection pool that checks connections before use, as for PostgreSQL", needs: []string{"python3"}, argv: "python3 " + applicationFile("pool.py")},
		{row: "`curl --resolve`, with the first address", needs: []string{"curl"}, argv: "sh " + applicationFile("pinned.sh")},
	}
)

const applicationPolicy = `
podSelector: {matchLabels: {ttl: LABEL}}
ttl: TTL
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 8000}]`

// briefTTL lets an address be open for 8 s, where the default is 90 s: longer than a busy
// machine makes an application wait.
const briefTTL = "{minSeconds: 6, maxSeconds: 6, graceSeconds: 2, reuseSeconds: 600}"

// The kinds of names, which are the table's columns, and the column of requests after an idle
// time.
const (
	keeps, rotates, moves = "keeps", "rotates", "moves"
	afterIdle             = "after idle"
)

var (
	names              = []string{keeps, rotates, moves}
	applicationColumns = append(names[:3:3], afterIdle)
)

const (
	movedFrom, movedTo = "198.51.100.7", "198.51.100.8"
	keepsAt            = "198.51.100.5"
	// applicationIdle is to the 8 s of briefTTL as ten minutes are to 90 s, and longer than the
	// DNS cache of OpenJDK.
	applicationIdle = 54 * time.Second
	// inUseFor is how long applications make requests before and after the move: longer than
	// the 8 s, each.
	inUseFor = 11 * time.Second
	// bypassLimit is longer than the DNS cache of OpenJDK keeps an answer that opened nothing.
	bypassLimit = 40 * time.Second
	// betweenRequests is the pause between requests.
	betweenRequests = 500 * time.Millisecond
)

// applicationStage is a lab with a pod for each application, and an HTTP server.
type applicationStage struct {
	*stage
	server *http.Server
	etc    lab.Etc

	mu    sync.Mutex
	moved bool
	turn  int // of the rotating name
}

// address answers for the three names, with TTL 2.
func (s *applicationStage) address(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	r.RecursionAvailable = true
	name := q.Question[0].Name
	if q.Question[0].Qtype != dns.TypeA {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind, _, _ := strings.Cut(name, "."); kind {
	case keeps:
		r.Answer = append(r.Answer, a(name, 2, netip.MustParseAddr(keepsAt)))
	case rotates: // two of very many
		for range 2 {
			r.Answer = append(r.Answer, a(name, 2, netip.AddrFrom4([4]byte{198, 18, byte(s.turn >> 8), byte(s.turn)})))
			s.turn++
		}
	case moves:
		at := movedFrom
		if s.moved {
			at = movedTo
		}
		r.Answer = append(r.Answer, a(name, 2, netip.MustParseAddr(at)))
	}
	return r
}

// serveHTTP starts the world's HTTP server, which answers with the address that was dialled.
func (s *applicationStage) serveHTTP() {
	l, err := s.World.Listen(fmt.Sprintf("[::]:%d", applicationPort))
	fatal.If(s.t, err)
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).AddrPort().Addr().Unmap()
		fmt.Fprint(w, at)
	})}
	go s.server.Serve(l)
	s.t.Cleanup(func() { s.server.Close() })
}

// runningApplication is an application in its pod.
type runningApplication struct {
	application
	argv    []string
	program *lab.Program
	cells   map[string]string // what the table expects, by column
	pod     string

	// direct returns how many queries of the pod reached the resolver without the agent: interception ends
	// where a machine leaves the agent without processor time for three seconds.
	direct func() int

	failed map[string]string // the last failure by kind of name
	faults []string          // differences to the table
}

// applicationCommands builds the applications, and returns their commands.
func applicationCommands(t *testing.T) (all [][]string) {
	t.Helper()
	dir, built := t.TempDir(), map[string]bool{}
	fatal.If(t, os.WriteFile(filepath.Join(dir, "for-ever"), []byte("networkaddress.cache.ttl=-1\n"), 0o644))
	in := func(command string) []string { return strings.Fields(strings.ReplaceAll(command, "DIR", dir)) }
	for _, a := range applications {
		needed(t, a.needs...)
		if a.build != "" && !built[a.build] {
			argv := in(a.build)
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", a.build, err, out)
			}
			built[a.build] = true
		}
		all = append(all, in(a.argv))
	}
	return all
}

// request requests a kind of name, and returns the address that answered, or the error.
func (r *runningApplication) request(kind string) (at, failure string) {
	answer, err := r.program.Ask(fmt.Sprintf("http://%s.wild.test:%d/", kind, applicationPort))
	if err != nil {
		return "", err.Error()
	}
	if at, ok := strings.CutPrefix(answer, "ok "); ok {
		return at, ""
	}
	return "", answer
}

// requests makes requests to all names until every application is done: it has made them for
// a while, and those have failed that the table says fail, the name that moves only after
// it has moved.
func (r *runningApplication) requests(moved bool, others *sync.WaitGroup) {
	fails := func(kind string) bool { return r.cells[kind] == "fails" && (kind != moves || moved) }
	all := func() bool {
		for _, kind := range names {
			if fails(kind) && r.failed[kind] == "" {
				return false
			}
		}
		return true
	}
	over := make(chan struct{})
	go func() { others.Wait(); close(over) }()
	done := sync.OnceFunc(others.Done)
	defer done()
	for begin := time.Now(); len(r.faults) == 0; {
		for _, kind := range names {
			if _, failure := r.request(kind); failure != "" {
				r.failed[kind] = failure
				if !fails(kind) {
					r.fault("the name that %s, after %v: %s", kind, time.Since(begin), failure)
				}
			}
		}
		switch since := time.Since(begin); {
		case since > inUseFor && all():
			done()
		case since > eventLimit:
			r.fault("not every name fails that should: %v", r.failed)
		}
		select {
		case <-over:
			return
		case <-time.After(betweenRequests):
		}
	}
}

func (r *runningApplication) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// afterIdle makes one request to each name.
func (r *runningApplication) afterIdle() {
	if len(r.faults) > 0 {
		return
	}
	for _, kind := range names {
		direct := r.direct()
		at, failure := r.request(kind)
		for until := time.Now().Add(bypassLimit); failure != "" && r.direct() > direct && time.Now().Before(until); {
			time.Sleep(betweenRequests)
			at, failure = r.request(kind)
		}
		if got := map[bool]string{true: "succeeds", false: "fails"}[failure == ""]; got != r.cells[afterIdle] {
			r.fault("the name that %s, after the idle time: %s %s", kind, at, failure)
		}
		if kind == moves && failure == "" && at != movedTo {
			r.fault("the name that moves, after the idle time: reached %s", at)
		}
	}
}

// applicationTable reads the table of docs/semantics.md.
func applicationTable(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/semantics.md")
	fatal.If(t, err)
	_, rest, found := strings.Cut(string(text), "\n| application |")
	if !found {
		t.Fatal("docs/semantics.md has no table of applications")
	}
	rest, _, _ = strings.Cut(rest, "\n\n")
	rows := map[string]map[string]string{}
	for _, line := range strings.Split(rest, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		row := map[string]string{}
		for i, c := range cells[1:] {
			row[applicationColumns[i]] = strings.TrimSpace(c)
		}
		rows[strings.TrimSpace(cells[0])] = row
	}
	return rows
}

// TestApplications: which requests of unmodified applications succeed whose names keep
// their address, rotate and move, as the table of docs/semantics.md has it.
func TestApplications(t *testing.T) {
	t.Parallel()
	commands := applicationCommands(t)
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) { testApplications(t, kind, commands) })
}

func testApplications(t *testing.T, kind nodeKind, commands [][]string) {
	s := &applicationStage{stage: newStageOf(t, kind)}
	var err error
	s.etc, err = lab.WriteEtc(t.TempDir(), lab.Resolver4.String())
	fatal.If(t, err)
	s.serveHTTP()
	for _, kind := range names {
		s.zone.say(kind+".wild.test", s.address)
	}
	spec := func(label, ttl string) string {
		return policy(label, strings.NewReplacer("LABEL", label, "TTL", ttl).Replace(applicationPolicy))
	}
	files := map[string]string{"brief.yaml": spec("brief", briefTTL), "default.yaml": spec("default", "{}")}
	table := applicationTable(t)
	var all []*runningApplication
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for i, a := range applications {
		r := &runningApplication{application: a, argv: commands[i], cells: table[a.row], pod: fmt.Sprintf("app%d", i), failed: map[string]string{}}
		if len(r.cells) != len(applicationColumns) {
			t.Fatalf("the table has no row of %d cells for %s", len(applicationColumns)+1, a.row)
		}
		label := "brief"
		if a.defaults {
			label = "default"
		}
		pod := s.addPod(r.pod, 20+i)
		r.direct = func() int { return s.outside.AskedBy(pod.Addr4) }
		files[r.pod+".yaml"] = pod.Manifest("shop", r.pod, map[string]string{"ttl": label})
		all = append(all, r)
	}
	diff.MustEqual(t, len(all), len(table), "rows of the table: one for each application")
	s.start(files)
	each := func(f func(r *runningApplication, others *sync.WaitGroup)) {
		var wait, others sync.WaitGroup
		others.Add(len(all))
		for _, r := range all {
			wait.Go(func() { f(r, &others) })
		}
		wait.Wait()
	}
	each(func(r *runningApplication, others *sync.WaitGroup) {
		var err error
		if r.program, err = s.Pod(r.pod).StartIn(ctx, s.etc, r.argv...); err != nil {
			r.fault("%v", err)
			others.Done()
			return
		}
		r.requests(false, others)
	})
	s.mu.Lock()
	s.moved = true
	s.mu.Unlock()
	each(func(r *runningApplication, others *sync.WaitGroup) { r.requests(true, others) })
	s.server.SetKeepAlivesEnabled(false) // the server closes connections that are idle
	idle := time.Now()
	for _, r := range all {
		if !r.defaults {
			s.nothingOpen(r.pod)
		}
	}
	time.Sleep(time.Until(idle.Add(applicationIdle)))
	s.server.SetKeepAlivesEnabled(true)
	each(func(r *runningApplication, _ *sync.WaitGroup) { r.afterIdle() })
	for _, r := range all {
		if len(r.faults) > 0 {
			t.Errorf("%s:\n%s\n%v", r.row, strings.Join(r.faults[:min(5, len(r.faults))], "\n"), s.denied(r.pod))
		}
		for kind, failure := range r.failed {
			t.Logf("%s, the name that %s: %s", r.row, kind, failure)
		}
		if r.program != nil {
			_ = r.program.End() // a program that has ended is a fault already
		}
	}
}

// nothingOpen waits until no address is open for a pod.
func (s *applicationStage) nothingOpen(pod string) {
	s.t.Helper()
	for until := time.Now().Add(eventLimit); ; time.Sleep(500 * time.Millisecond) {
		out, errs, code := s.command("grants", "shop/"+pod)
		if code == 0 && !strings.Contains(out, "wild.test") {
			return
		}
		if time.Now().After(until) {
			s.t.Fatalf("addresses of an idle pod stay open:\n%s%s", out, errs)
		}
	}
}

// denied returns the denied flows of a pod that are in the audit log.
func (s *applicationStage) denied(pod string) (all []map[string]any) {
	lines, err := s.agent.AuditLines()
	fatal.If(s.t, err)
	for _, line := range lines {
		if of, ok := line["pod"].(map[string]any); ok && of["name"] == pod && line["verdict"] == "denied" {
			all = append(all, line)
		}
	}
	return all
}
