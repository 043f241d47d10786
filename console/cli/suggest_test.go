package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// flowLine is a denied connection of a pod of shop, seen at noon and some minutes.
func flowLine(pod string, minute int, name string, port int) string {
	at := time.Date(2026, 5, 1, 12, minute, 0, 0, time.UTC).Format(time.RFC3339)
	return fmt.Sprintf(`{"v":1,"kind":"flow","time":%q,"node":"node-1","verdict":"denied","pod":{"namespace":"shop","name":%q,"workload":"app=cart","ip":"10.244.1.17"},`+
		`"protocol":"tcp","destination":{"address":"192.0.2.10","port":%d},"names":[{"name":%q,"asked":%q}],"reason":"unmatched","policies":["shop/out"],"count":1}`+"\n",
		at, pod, port, name, at)
}

// byAddress is a denied connection to an address that no name led to.
func byAddress(line string) string {
	before, _, _ := strings.Cut(line, `"names":`)
	return before + `"reason":"address","policies":["shop/out"],"count":1}` + "\n"
}

const suggested = `# shop: pods with app=cart; connections: 1 denied; 2026-05-01T12:00:00Z to 2026-05-01T12:00:00Z
apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  name: cart-egress
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: cart
  egress:
  - matches:
    - name: www.example.org
    ports:
    - protocol: TCP
      port: 443
`

// TestSuggestCommand: each way in which it ends, with its exit code.
func TestSuggestCommand(t *testing.T) {
	one := flowLine("cart-1", 0, "www.example.org", 443)
	torn := "not JSON\n" + one + one[:100]
	six := strings.Repeat("{}\n", 6)
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		out, errs   string // the output; "" for none at all
	}{
		{"one name", one, []string{"-"}, 0, suggested, ""},
		{"nothing", "", []string{"-"}, 0, "# Nothing was denied.\n", ""},
		{"JSON", one, []string{"-", "-o", "json"}, 0, `"kind": "List",`, ""},
		{"JSON of nothing", "", []string{"-", "-o", "json"}, 0, `"items": []`, ""},
		{"malformed lines", torn, []string{"-"}, 1, suggested, "namegate: -:1: left out: it is no line of the audit log: "},
		{"malformed lines are counted", torn, []string{"-"}, 1, suggested, "namegate: 2 lines were left out, since they are no lines of the audit log; all others count\n"},
		{"many malformed lines", six + one, []string{"-"}, 1, suggested, "namegate: 6 lines were left out"},
		{"a pod that cannot exist", strings.Replace(one, "cart-1", "Cart 1", 1) + one, []string{"-"}, 1, suggested, `namegate: -: left out: pod "Cart 1" of namespace "shop" cannot exist` + "\n"},
		{"the cloud's metadata", strings.Replace(flowLine("cart-1", 0, "metadata.google.internal", 80), "192.0.2.10", "169.254.169.254", 1), []string{"-"}, 0,
			"# Note: dialled where by default no name may lead, so that such connections are denied even so: metadata.google.internal (169.254.169.254, metadata); the administrator can write `rebind allow", ""},
		{"pods that claim one address", strings.Replace(one, `"cart-1"`, `"cart-1+pay/till"`, 1) + one, []string{"-"}, 1, suggested, "are several pods that claim one address, for which no policy opens anything\n"},
		{"a gap", one + `{"v":1,"kind":"lost","count":7}` + "\n", []string{"-"}, 1, suggested, "namegate: -:2: 7 lines are missing here: they came faster than they were taken\nnamegate: 7 lines are missing, "},
		{"by address", byAddress(one), []string{"-"}, 1, "# Left out: tcp 192.0.2.10:443 was dialled by address", "namegate: not everything that was seen can be allowed by these policies as they are; see what is left out\n"},
		{"another namespace", one, []string{"-", "-n", "pay"}, 0, "# Nothing was denied.\n", ""},
		{"this pod", one + flowLine("cart-2", 0, "b.test", 80), []string{"-", "--pod", "shop/cart-1"}, 0, suggested, ""},
		{"this pod of this namespace", one + flowLine("cart-2", 0, "b.test", 80), []string{"-", "--pod", "cart-1", "-n", "shop"}, 0, suggested, ""},
		{"since", flowLine("cart-1", 9, "www.example.org", 443) + flowLine("cart-1", 7, "b.test", 80), []string{"-", "--since", "2026-05-01T12:08:00Z"}, 0,
			strings.ReplaceAll(suggested, "12:00:00", "12:09:00"), ""},
		{"folded", flowLine("cart-1", 0, "a.example.org", 443) + flowLine("cart-1", 0, "b.example.org", 443), []string{"-", "--fold", "2"}, 0, "- pattern: '*.example.org'\n", ""},
		{"another format", "", []string{"-", "-o", "xml"}, 2, "", "-o xml is not known; write -o yaml or -o json"},
		{"fold of one", "", []string{"-", "--fold", "1"}, 2, "", "--fold 1; write 2 or more, or 0 to fold nothing"},
		{"deep alone", "", []string{"-", "--deep"}, 2, "", "--deep says how to fold; write --fold N too"},
		{"ports that are none", "", []string{"-", "--unused", "https"}, 2, "", `--unused: port set "https": "https" is not PROTOCOL, PROTOCOL/PORT or PROTOCOL/FIRST-LAST`},
		{"since nothing", "", []string{"-", "--since", "yesterday"}, 2, "", "--since yesterday; write a duration such as 24h, or a time such as 2026-05-01T12:00:00Z"},
		{"following a file", "", []string{"-", "--for", "1m"}, 2, "", "--for follows the agents; leave the files out"},
		{"two namespaces", "", []string{"-", "--pod", "shop/a", "-n", "pay"}, 2, "", "--pod: "},
		{"no such file", "", []string{"/nonexistent/audit.log"}, 1, "", "namegate: there is no file /nonexistent/audit.log; write the path of an audit log, - for the standard input, or nothing to ask the agents\n"},
		{"a folder", "", []string{"/"}, 1, "# Nothing was denied.\n", "/ cannot be read to its end: "},
		{"no agent", "", []string{"--socket", "/nonexistent/socket"}, 3, "", "no agent at socket /nonexistent/socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := called(t, c.stdin, append([]string{"suggest"}, c.args...)...)
			diff.Equal(t, c.code, code, "exit code")
			for _, text := range []struct{ name, got, want string }{{"output", out, c.out}, {"standard error", errs, c.errs}} {
				if !strings.Contains(text.got, text.want) || text.want == "" && text.got != "" {
					t.Errorf("%s %q, want %q", text.name, text.got, text.want)
				}
			}
			if n := strings.Count(errs, "left out: "); n > maxBadLines {
				t.Errorf("%d bad lines are named", n)
			}
		})
	}
}

// TestSuggestPassesCheck: the suggestion is clean, strictly, and allows the denied
// connections.
func TestSuggestPassesCheck(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		_, out, _ := called(t, flowLine("cart-1", 0, "www.example.org", 443)+flowLine("cart-2", 0, "api.example.org", 8443), "suggest", "-", "-o", format)
		args := []string{"check", "-", "--strict", "-n", "shop", "--labels", "app=cart", "--to", "www.example.org:443", "--to", "api.example.org:8443"}
		if code, said, errs := called(t, out, args...); code != 0 {
			t.Errorf("%s: exit code %d: %s%s", format, code, said, errs)
		}
		args[len(args)-1] = "api.example.org:443"
		if code, said, errs := called(t, out, args...); code != 1 {
			t.Errorf("%s: exit code %d: %s%s", format, code, said, errs)
		}
	}
}

// serveLines is an agent at a unix socket that answers with lines, and with follow keeps
// the answer open.
func serveLines(t *testing.T, lines string) (socket string, queries *[]string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	fatal.If(t, err)
	queries = &[]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+console.AuditPath, func(w http.ResponseWriter, r *http.Request) {
		*queries = append(*queries, r.URL.RawQuery)
		fmt.Fprint(w, lines)
		if r.URL.Query().Has("follow") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	s := &http.Server{Handler: mux}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket, queries
}

// TestSuggestAsksTheAgent: without a file the lines are the agent's.
func TestSuggestAsksTheAgent(t *testing.T) {
	socket, queries := serveLines(t, flowLine("cart-1", 0, "www.example.org", 443))
	if code, out, errs := called(t, "", "suggest", "--socket", socket, "-n", "shop", "--pod", "cart-1"); code != 0 || out != suggested || errs != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if code, out, errs := called(t, "", "suggest", "--socket", socket, "--for", "50ms"); code != 0 || out != suggested || errs != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	diff.Equal(t, "namespace=shop&pod=shop%2Fcart-1 follow=1", strings.Join(*queries, " "), "asked")
}

// lossy is an agent of a node.
type lossy struct {
	node string
	client.Agent
	err error
}

func (l lossy) Node() string { return l.node }

// TestSuggestWithAnUnavailableAgent: an agent that does not answer does not affect another's lines.
func TestSuggestWithAnUnavailableAgent(t *testing.T) {
	socket, _ := serveLines(t, flowLine("cart-1", 0, "www.example.org", 443))
	for _, c := range []struct {
		agents []client.Agent
		lost   bool // no agent answers
	}{
		{[]client.Agent{lossy{"a", client.Local{Socket: socket}, nil}, lossy{"b", client.Local{Socket: socket + ".gone"}, nil}}, false},
		{[]client.Agent{lossy{"a", client.Local{Socket: socket + ".gone"}, nil}, lossy{"b", client.Local{Socket: socket + ".gone"}, nil}}, true},
	} {
		var errs strings.Builder
		s := newSuggesting()
		s.lines.errs = &errs
		err := s.gather(t.Context(), c.agents, nil)
		if (err != nil) != c.lost || console.ExitCode(s.broken) != console.ExitUnreachable {
			t.Errorf("%v, broken %v", err, s.broken)
		}
		diff.Has(t, "namegate: node b: no agent at socket ", errs.String(), "said")
		if got := len(s.log.Suggest(s.o).Parts); (got == 0) != c.lost {
			t.Errorf("%d workloads", got)
		}
	}
}

// TestSuggestReadsAllFiles, in any number.
func TestSuggestReadsAllFiles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, name := range []string{"a.test", "b.test"} {
		paths = append(paths, filepath.Join(dir, name))
		fatal.If(t, os.WriteFile(paths[i], []byte(flowLine("cart-1", 0, name, 443)), 0o644))
	}
	code, out, _ := called(t, flowLine("cart-1", 0, "c.test", 443), append([]string{"suggest", "-"}, paths...)...)
	for _, name := range []string{"a.test", "b.test", "c.test"} {
		if code != 0 || !strings.Contains(out, "- name: "+name+"\n") {
			t.Errorf("exit code %d, without %s: %s", code, name, out)
		}
	}
}

func TestBeginning(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for since, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "2026-04-01T00:00:00Z": time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := beginning(since, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", since, got, err)
		}
	}
	for _, since := range []string{"-1h", "0s", "noon"} {
		if got, err := beginning(since, now); err == nil {
			t.Errorf("%q: %v", since, got)
		}
	}
}

var _ client.Agent = lossy{}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx
}

// TestSuggestWhenInterrupted: the lines so far count.
func TestSuggestWhenInterrupted(t *testing.T) {
	s := newSuggesting()
	s.lines.errs, s.during = &strings.Builder{}, time.Hour
	if err := s.gather(ended(t), []client.Agent{client.Local{Socket: filepath.Join(t.TempDir(), "gone")}}, nil); err != nil {
		t.Error(err)
	}
}

// needed are denied connections of pods of namespaces to a name.
func needed(name string, namespaces ...string) (text string) {
	for _, ns := range namespaces {
		text += strings.ReplaceAll(flowLine("a-1", 0, name, 443), `"shop`, `"`+ns)
	}
	return text
}

// TestSuggestCluster: the command writes one policy, in which check finds nothing.
func TestSuggestCluster(t *testing.T) {
	lines := needed("registry.example.com", "shop", "pay", "front") + needed("www.example.org", "shop", "pay")
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		out, errs   string // parts of the output; "" for none at all
	}{
		{"by default", lines, []string{"-"}, 0, "  tier: Baseline\n", ""},
		{"the namespaces", lines, []string{"-"}, 0, "        - front\n        - pay\n        - shop\n", ""},
		{"Admin, all", lines, []string{"-", "--tier", "Admin", "--subject", "all"}, 0, "  tier: Admin\n  priority: 500\n  subject:\n    namespaces: {}\n", ""},
		{"two namespaces", lines, []string{"-", "--min-namespaces", "2"}, 0, "    - name: www.example.org\n", ""},
		{"too few", lines, []string{"-", "--min-namespaces", "4"}, 0, "# No policy: there is no name to accept that 4 namespaces or more need.\n", ""},
		{"JSON", lines, []string{"-", "-o", "json"}, 0, `"kind": "ClusterFQDNNetworkPolicy"`, ""},
		{"JSON of nothing", "", []string{"-", "-o", "json"}, 0, `"items": []`, ""},
		{"denied by an administrator", strings.ReplaceAll(lines, `"reason":"unmatched"`, `"tier":"Admin","policy":"p","rule":"r","reason":"rule"`), []string{"-"}, 1,
			"# Left out: registry.example.com: a cluster policy (Admin) denies it\n", "namegate: left out: registry.example.com: a cluster policy (Admin) denies it\n"},
		{"a line that is none", "{}\n" + lines, []string{"-"}, 1, "  tier: Baseline\n", "1 line was left out"},
		{"a tier that is none", "", []string{"-", "--tier", "Namespace"}, 2, "", "write --tier Baseline or --tier Admin"},
		{"a subject that is none", "", []string{"-", "--subject", "none"}, 2, "", "write --subject seen or --subject all"},
		{"no namespaces", "", []string{"-", "--min-namespaces", "0"}, 2, "", "--min-namespaces 0; write 1 or more"},
		{"one namespace", "", []string{"-", "-n", "shop"}, 2, "", "--cluster is about many namespaces"},
		{"folded", "", []string{"-", "--fold", "3"}, 2, "", "--fold, --unused, --every-protocol and --server-names are for policies of namespaces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := called(t, c.stdin, append([]string{"suggest", "--cluster"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.out) || c.out == "" && out != "" || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("exit code %d, output %q, standard error %q", code, out, errs)
			}
			m := check.New()
			fatal.If(t, m.Add("p.yaml", []byte(out)))
			for _, f := range m.Lint(check.Options{ClusterDomain: "cluster.local"}) {
				diff.Equal(t, check.NoPolicy, f.Reason, "check finds", f)
			}
		})
	}
	if code, _, errs := called(t, "", "suggest", "-", "--tier", "Admin"); code != 2 || !strings.Contains(errs, "are for --cluster; write it too") {
		t.Errorf("%d %s", code, errs)
	}
}

// TestSuggestClusterAsksAgents: for lines of all namespaces, and with the word that asks for the
// right to read cluster policies; a suggestion for namespaces does not.
func TestSuggestClusterAsksAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	fatal.If(t, err)
	var asked []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		_, _ = w.Write([]byte(needed("registry.example.com", "shop", "pay", "front")))
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	if code, out, errs := called(t, "", "suggest", "--cluster", "--socket", path); code != 0 || !strings.Contains(out, "name: registry.example.com") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := called(t, "", "suggest", "--socket", path); code != 0 {
		t.Errorf("%d %s", code, errs)
	}
	diff.Error(t, []string{console.AuditPath + "?cluster=1", console.AuditPath}, asked)
}

// TestRelayPort: the NetworkPolicies that commands write for another engine have the default port of the Corefile.
func TestRelayPort(t *testing.T) {
	diff.Error(t, uint16(corefile.Default().ServerNames.Port), netpolicyfor.Endpoint().RelayPort)
}
