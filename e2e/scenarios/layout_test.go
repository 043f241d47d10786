package scenarios

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// sourceChanges are texts of source files, each with its replacement.
type sourceChanges map[string][][2]string

// olderLayout changes this agent's sources into those of another layout: other names of
// chains and of sets, and nft tables with other names, another priority and another type. Sets of
// grants keep their names.
var olderLayout = sourceChanges{
	"enforcer/dataplane/xtables/naming.go": {
		{`"NAMEGATE-HOME"`, `"NAMEGATE-SITE"`}, {`"NAMEGATE-PORTS"`, `"NAMEGATE-PLUGS"`}, {`"NAMEGATE-IFACES"`, `"NAMEGATE-LINKS"`},
		{`"NAMEGATE-NAMES"`, `"NAMEGATE-QUERY"`},
		{`"NAMEGATE-DROP"`, `"NAMEGATE-DENY"`}, {`ChainPrefix + "P-"`, `ChainPrefix + "POD-"`},
		{`= "selected"`, `= "chosen"`}, {`= "home"`, `= "site"`},
	},
	"enforcer/ruleset/layout/layout.go": {
		{`@selected%`, `@chosen%`}, {`@ifaces`, `@links`}, {`l.chain("judge"`, `l.chain("verdict"`}, {`jump judge`, `jump verdict`},
		{`verdictPriority   = "-10"`, `verdictPriority   = "-20"`},
		{`Hook: "output", Priority: giveBackPriority`, `Hook: "postrouting", Priority: giveBackPriority`},
		{`saddr @podrange%[1]s`, `saddr . th dport @podrange%[1]s`},
	},
	"enforcer/ruleset/layout/sets.go": {
		{`Name: "selected"`, `Name: "chosen"`}, {`Name: "ifaces"`, `Name: "links"`}, {`Name: "podrange", Key: addr`, `Name: "podrange", Key: addr + " . inet_service"`},
	},
	"enforcer/ruleset/layout/logrules.go": {{`@selected%`, `@chosen%`}},
	"enforcer/ruleset/layout/namespace.go": {
		{`podPrefix  = "pod-"`, `podPrefix  = "unit-"`}, {`listPrefix = "list-"`, `listPrefix = "row-"`},
		{`podsMap     = "pods"`, `podsMap     = "units"`}, {`stagedSet   = "staged"`, `stagedSet   = "coming"`},
	},
	"enforcer/ruleset/layout/earlier.go": {{`"selected"`, `"chosen"`}},
	"enforcer/ruleset/layout/net.go": {
		{`"selected"`, `"chosen"`}, {`@selected%`, `@chosen%`}, {`"ifaces"`, `"links"`}, {`@ifaces`, `@links`},
		{`"unadmitted"`, `"unjudged"`}, {`goto unadmitted`, `goto unjudged`}, {`netPriority = "50"`, `netPriority = "60"`},
	},
	"enforcer/ruleset/layout/state.go": {
		{`out.addrs("selected"`, `out.addrs("chosen"`}, {`out.Add("ifaces"`, `out.Add("links"`},
		{`out.prefixes("podrange", s.PodRanges)`, `for _, p := range s.PodRanges {
		out.Add("podrange"+timed.Suffix(p.Addr()), rangeText(p), "53")
	}`},
	},
}

// ofOlder and ofThis are names that one layout has and the other has not, with each
// dataplane.
var (
	ofOlder = map[string][]string{
		iptables: {"NAMEGATE-SITE", "NAMEGATE-QUERY", "NAMEGATE-DENY", "NAMEGATE-POD-", "NG4-chosen", "NG6-site", "chosen4", "chain verdict"},
		nftables: {"chosen4", "chain verdict", "map units4", "chain unit-", "set coming6", "chain unjudged"},
	}
	ofThis = map[string][]string{
		iptables: {"NAMEGATE-HOME", "NAMEGATE-NAMES", "NAMEGATE-DROP", "NAMEGATE-P-", "NG4-selected", "NG6-home", "selected4", "chain judge {"},
		nftables: {"selected4", "chain judge {", "map pods4", "chain pod-", "set staged6", "chain unadmitted"},
	}
)

// build builds the agent of changed sources.
func (c sourceChanges) build(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	fatal.If(t, err)
	dir := t.TempDir()
	overlay := map[string]string{}
	for file, changes := range c {
		text, err := os.ReadFile(filepath.Join(root, file))
		fatal.If(t, err)
		older := string(text)
		for _, c := range changes {
			if !strings.Contains(older, c[0]) {
				t.Fatalf("%s has no %s any more: the older layout is another now", file, c[0])
			}
			older = strings.ReplaceAll(older, c[0], c[1])
		}
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		fatal.If(t, os.WriteFile(at, []byte(older), 0o644))
		overlay[filepath.Join(root, file)] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o644)
	}
	fatal.If(t, err)
	binary := filepath.Join(dir, "older")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "../../cmd/namegate").CombinedOutput(); err != nil {
		t.Fatalf("build the agent of the older layout: %v\n%s", err, out)
	}
	return binary
}

// kernelText is all rules and sets of the node, of both variants.
func (s *stage) kernelText() string {
	s.t.Helper()
	return s.prints("iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save", "ipset list -n", "nft list ruleset")
}

// prints returns the output of commands on the node.
func (s *stage) prints(commands ...string) string {
	s.t.Helper()
	var all strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		out, err := s.Node.Run(words[0], words[1:]...)
		fatal.If(s.t, err, command, out)
		all.WriteString(out)
	}
	return all.String()
}

// laidOut asserts that everything of one layout is there and nothing of the other.
func (s *stage) laidOut(when string, there, gone []string) {
	s.t.Helper()
	text := s.kernelText()
	for _, w := range there {
		diff.Has(s.t, w, text, when, "not there")
	}
	for _, w := range gone {
		if strings.Contains(text, w) {
			s.t.Errorf("%s: %s is left", when, w)
		}
	}
}

// layoutStage is a stage whose pod a was answered, with an agent that is started.
func layoutStage(t *testing.T, kind nodeKind, binary string) *stage {
	t.Helper()
	s := newStageOf(t, kind)
	s.agent.Use(binary, kind.args()...)
	s.outside.SetAnswer(upgradeAnswer)
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
		"p.yaml": policy("all", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{pattern: \"*.wild.example.org\"}, {pattern: \"*.example.org\"}]\n  ports: [{protocol: TCP, port: 80}]\n- matches: [{name: b1.example.net}]\nttl: {minSeconds: 600}"),
	})
	s.resolve("a", "www.example.org", dns.TypeA)
	return s
}

// TestChangedLayout: an agent whose rules have other names, places and types follows, and
// precedes, with an overlap and after a kill at any moment. Allowed stays allowed and
// denied denied, and nothing of the last layout is left.
func TestChangedLayout(t *testing.T) {
	t.Parallel()
	older := olderLayout.build(t)
	eachBackend(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		followed(t, kind, older, ofOlder[kind.dataplane], ofThis[kind.dataplane])
	})
}

// followed has this agent follow and precede an older one.
func followed(t *testing.T, kind nodeKind, older string, ofOlder, ofThis []string) {
	s := layoutStage(t, kind, older)
	s.laidOut("at first", ofOlder, ofThis)
	stop := s.vigil("a", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	kept := s.resolve("a", "b1.example.net", dns.TypeA)[0]
	lines := []*line{s.line("a", "tcp", kept), s.line("a", "udp", kept)}
	turn := func(how, binary string, there, gone []string, next func() error) {
		t.Helper()
		s.agent.Use(binary, kind.args()...)
		fatal.If(t, next(), how)
		s.laidOut(how, there, gone)
		s.goesOn(how, lines...)
		if st, err := s.agent.Status(); err != nil || st.Enforcer.Grants == 0 {
			t.Errorf("%s: %d grants, %v", how, st.Enforcer.Grants, err)
		}
	}
	killed := func() error {
		if err := s.agent.Stop(syscall.SIGKILL); err != nil {
			return err
		}
		return s.agent.Start()
	}
	turn("after an upgrade", agentBinary, ofThis, ofOlder, s.agent.Upgrade)
	turn("after a step back", older, ofOlder, ofThis, s.agent.Upgrade)
	turn("after a kill", agentBinary, ofThis, ofOlder, killed)
	turn("after a kill and a step back", older, ofOlder, ofThis, killed)
	turn("after kills at any moment", agentBinary, ofThis, ofOlder, func() error {
		if err := s.agent.Stop(syscall.SIGKILL); err != nil {
			return err
		}
		s.dieEarly(8, kind, agentBinary, older)
		s.agent.Use(agentBinary, kind.args()...)
		return s.agent.Start()
	})
	stop("while layouts change")
}

// dieEarly starts agents in turn and kills each somewhere on its way.
func (s *stage) dieEarly(times int, kind nodeKind, binaries ...string) {
	s.t.Helper()
	for i := range times {
		s.agent.Use(binaries[i%len(binaries)], kind.args()...)
		if err := s.agent.Begin(); err != nil {
			s.t.Error(err)
		}
		time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		if err := s.agent.Stop(syscall.SIGKILL); err != nil {
			s.t.Error(err)
		}
	}
}

// TestOtherVariant: an agent that writes by the other variant of iptables follows, with
// an overlap and after a kill, and leaves nothing of the earlier variant.
func TestOtherVariant(t *testing.T) {
	t.Parallel()
	s := layoutStage(t, nodeKind{lab.Routed, iptables, "legacy"}, agentBinary)
	stop := s.vigil("a", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	for i, variant := range []string{"nft", "legacy", "nft", "legacy"} {
		next := s.agent.Upgrade
		if i >= 2 {
			next = func() error {
				if err := s.agent.Stop(syscall.SIGKILL); err != nil {
					return err
				}
				return s.agent.Start()
			}
		}
		s.agent.Use(agentBinary, "--iptables", variant)
		fatal.If(t, next())
		for v, want := range map[string]bool{"legacy": variant == "legacy", "nft": variant == "nft"} {
			for _, program := range []string{"iptables", "ip6tables"} {
				out, err := s.Node.Run(program + "-" + v + "-save")
				fatal.If(t, err, out)
				diff.Equal(t, want, strings.Contains(out, "NAMEGATE"), "turn", i, "an agent of", variant, program, "of", v, "holds chains of ours:")
			}
		}
	}
	stop("while variants change")
}
