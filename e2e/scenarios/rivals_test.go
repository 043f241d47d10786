package scenarios

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// comeback bounds the time until a removed object is restored, on a busy machine too, and
// usualComeback in half of the cases: the promise is a second, and an agent without the
// kernel's notification checks every 5 s.
const comeback, usualComeback = lab.Limit, 3 * time.Second

// soonBack asserts that half of the repairs were soon.
func (s *stage) soonBack(took []time.Duration) {
	s.t.Helper()
	slices.Sort(took)
	s.t.Logf("repaired after %v", took)
	if took[len(took)/2] > usualComeback {
		s.t.Errorf("half of the repairs took longer than %v: %v", usualComeback, took)
	}
}

// rest is the pause between rivals, so that the next one does not count as a continuing
// one: repairs against that are ever slower.
const rest = 300 * time.Millisecond

// rivals are programs that change objects, by the variant that the agent uses. restore is
// iptables-restore without --noflush, as some CNIs use it.
var rivals = []struct {
	name, shell string
	harms       string        // the dataplane whose objects it changes, "both", or "" for none
	alone       bool          // it cannot do without these objects
	lasts       time.Duration // how long it keeps the agent from its tables
}{
	{name: "flushes mangle", harms: iptables, shell: `for p in iptables ip6tables; do $p-VARIANT -t mangle -F; done`},
	{name: "flushes security", harms: iptables, shell: `for p in iptables ip6tables; do $p-VARIANT -t security -F; done`},
	{name: "rewrites filter", shell: `iptables-VARIANT-save -t filter > DIR/filter && iptables-VARIANT-restore -T filter DIR/filter`},
	{name: "rewrites mangle without ours", harms: iptables, shell: `iptables-VARIANT-save -t mangle | grep -v NAMEGATE > DIR/mangle && iptables-VARIANT-restore -T mangle DIR/mangle`},
	{name: "removes a jump", harms: iptables, alone: true, shell: `iptables-VARIANT -t mangle -D PREROUTING -j NAMEGATE-NAMES`},
	{name: "accepts above ours and flushes mangle", harms: iptables, shell: `iptables-VARIANT -t mangle -I PREROUTING -j ACCEPT; iptables-VARIANT -t filter -I FORWARD -j ACCEPT; iptables-VARIANT -t mangle -F`},
	{name: "deletes the nft tables", harms: "both", shell: `nft delete table inet namegate; nft delete table bridge namegate`},
	{name: "switches the first table off", harms: "both", shell: `nft add table inet namegate '{ flags dormant; }'`},
	{name: "drops by the policy of a base chain", harms: "both", shell: `nft add chain inet namegate forward '{ policy drop; }'`},
	{name: "adds a base chain to the first table", harms: "both", shell: `nft add chain inet namegate rival '{ type filter hook forward priority -20; policy drop; }'`},
	{name: "flushes an nft set", harms: "both", shell: `nft flush set inet namegate selected4`},
	{name: "flushes the sets of selected pods", harms: iptables, alone: true, shell: `ipset flush NG4-selected; ipset flush NG6-selected`},
	{name: "flushes a pod's sets", harms: iptables, alone: true, shell: `for s in $(ipset list -n | grep -E '^NG[46]-[0-9a-f]{12}-'); do ipset flush $s; done`},
	{name: "takes one address out of a pod's set", harms: iptables, alone: true, shell: `for s in $(ipset list -n | grep -E '^NG4-[0-9a-f]{12}-'); do
		m=$(ipset list $s | awk '/^198[.]51[.]100[.]1[, ]/ {print $1}')
		[ -z "$m" ] || { ipset del $s $m; exit; }
	done; exit 1`},
	{name: "flushes every set", harms: iptables, shell: `ipset flush`},
	{name: "destroys every set", harms: iptables, shell: `for try in $(seq 20); do
		for t in raw mangle security; do for p in iptables ip6tables; do $p-VARIANT -t $t -F; $p-VARIANT -t $t -X; done; done
		ipset destroy && exit 0
	done; exit 1`},
	{name: "deletes the second table", harms: nftables, alone: true, shell: `nft delete table inet namegate-net`},
	{name: "flushes the second table", harms: nftables, alone: true, shell: `nft flush table inet namegate-net`},
	{name: "flushes a set of the second table", harms: nftables, alone: true, shell: `nft flush set inet namegate-net selected4`},
	{name: "accepts above ours in the first table", harms: nftables, alone: true, shell: `nft insert rule inet namegate forward accept`},
	{name: "accepts above ours in the second table", harms: nftables, alone: true, shell: `nft insert rule inet namegate-net forward accept`},
	{name: "flushes the rules of the first table", harms: nftables, alone: true, shell: `nft flush table inet namegate`},
	{name: "adds an address to a pod's grants", harms: nftables, alone: true, shell: eachNamed("set", "grants-.*-4", "nft add element inet namegate $n { 198.51.100.3 . tcp . 80, 198.51.100.3 . tcp . 9999 }")},
	{name: "adds a base chain to the second table", harms: nftables, alone: true, shell: `nft add chain inet namegate-net rival '{ type filter hook forward priority 40; policy drop; }'`},
	{name: "drops by the policy of the second table's base chain", harms: nftables, alone: true, shell: `nft add chain inet namegate-net forward '{ policy drop; }'`},
	{name: "switches the second table off", harms: nftables, alone: true, shell: `nft add table inet namegate-net '{ flags dormant; }'`},
	{name: "flushes the map of pods", harms: nftables, alone: true, shell: `nft flush map inet namegate pods4`},
	{name: "flushes a pod's chain", harms: nftables, alone: true, shell: eachNamed("chain", "pod-", "nft flush chain inet namegate $n")},
	{name: "flushes a pod's sets of grants", harms: nftables, alone: true, shell: eachNamed("set", "grants-", "nft flush set inet namegate $n")},
	{name: "takes one address out of a pod's grants", harms: nftables, alone: true, shell: eachNamed("set", "grants-.*-4", "nft delete element inet namegate $n { 198.51.100.1 . tcp . 80 }")},
	{name: "flushes every set of both tables", harms: nftables, alone: true, shell: `for t in namegate namegate-net; do
		for s in $(nft -t list table inet $t | awk '$1 == "set" { print $2 }'); do nft flush set inet $t $s || exit 1; done
	done`},
	{name: "flushes the other variant's tables", shell: `for p in iptables ip6tables; do for t in raw mangle filter security; do $p-OTHER -t $t -F; done; done`},
	{name: "accepts all by the other variant", shell: `for p in iptables ip6tables; do
		for at in "raw PREROUTING" "mangle PREROUTING" "mangle FORWARD" "filter FORWARD" "security FORWARD"; do set -- $at; $p-OTHER -t $1 -I $2 -j ACCEPT; done
	done`},
	{name: "rewrites the other variant's tables", shell: `for t in raw mangle filter security; do
		iptables-OTHER-save -t $t > DIR/other && iptables-OTHER-restore -T $t DIR/other || exit 1
	done`},
	{name: "holds the lock for 10 s", harms: iptables, shell: `flock $XTABLES_LOCKFILE sh -c 'XTABLES_LOCKFILE=DIR/none iptables-VARIANT -t mangle -F; sleep 10'`, lasts: 10 * time.Second},
}

// TestRivals: while another program changes our objects no denied connection passes, and
// allowed ones are allowed again immediately.
func TestRivals(t *testing.T) {
	t.Parallel()
	eachBackend(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		variant := cmp.Or(kind.variant, "nft")
		other := map[string]string{"legacy": "nft", "nft": "legacy"}[variant]
		s := newStageOf(t, kind)
		s.zone.add(`www.example.org. 600 IN A 198.51.100.1`)
		s.startClient(policy("www", allowWWW))
		s.resolve("a", "www.example.org", dns.TypeA)
		var took []time.Duration
		for _, r := range rivals {
			harmless := r.harms != "both" && r.harms != kind.dataplane
			if harmless && r.alone {
				continue
			}
			before, err := s.agent.Status()
			fatal.If(t, err)
			back := s.rival(r.name, strings.NewReplacer("VARIANT", variant, "OTHER", other, "DIR", s.agent.Dir).Replace(r.shell), r.lasts, harmless)
			if err := s.agent.WaitFor("the repair", func(st lab.Status) bool { return harmless || st.Enforcer.Repairs > before.Enforcer.Repairs }); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
			took = append(took, back)
			time.Sleep(rest)
		}
		s.soonBack(took)
	})
}

// rival lets a shell's commands run on the node while a pod probes, and returns how
// long after it all was well.
func (s *stage) rival(name, shell string, lasts time.Duration, harmless bool) (back time.Duration) {
	s.t.Helper()
	allowed := addrPort("198.51.100.1:80")
	v := s.watchfully("a", []string{allowed.String()}, []string{"198.51.100.2:80"})
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	run(s.t, s.Node, "sh", "-c", shell)
	ended := time.Now()
	if ended.Sub(began) < lasts {
		s.t.Errorf("%s: over after %v", name, ended.Sub(began))
	}
	good := 0 // in a row
	for ; good < 5 && time.Since(ended) < comeback; time.Sleep(10 * time.Millisecond) {
		if good++; s.Pod("a").ProbeFor("tcp", allowed, vigilance) != lab.Answered {
			good = 0
		}
	}
	back = time.Since(ended)
	v.end()
	if good < 5 {
		s.t.Errorf("%s: what is allowed is not back after %v", name, comeback)
	}
	if passed := v.passed.Load(); passed > 0 {
		s.t.Errorf("%s: %d of %d denied connections passed", name, passed, v.denied.Load())
	}
	if failed := v.failed.Load(); failed > 0 && harmless {
		s.t.Errorf("%s: nothing of ours is in it, and %d of %d allowed connections failed", name, failed, v.allowed.Load())
	}
	s.t.Logf("%s: all is well %v after it, %d denied connections; %d of %d allowed ones failed",
		name, back.Round(time.Millisecond), v.denied.Load(), v.failed.Load(), v.allowed.Load())
	return back
}

// TestLockHeld: while another program holds the lock of iptables, 10 s at least, names are
// answered and opened as ever, a pod that becomes selected is denied before the lock is
// free, and afterwards everything comes into force.
func TestLockHeld(t *testing.T) {
	t.Parallel()
	const held = 10 * time.Second
	s := newStageOf(t, nodeKind{lab.Routed, iptables, "legacy"}) // nftables has no lock
	s.outside.SetAnswer(upgradeAnswer)
	s.startClient(policy("all", "podSelector: {matchLabels: {app: client}}\negress:\n- matches: [{pattern: \"*.wild.example.org\"}, {name: www.example.org}]\n  ports: [{protocol: TCP, port: 80}]"))
	s.resolve("a", "www.example.org", dns.TypeA)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Answered)
	stop := s.vigil("a", []string{"198.51.100.1:80"}, []string{"198.51.100.2:80"})
	release := s.holdLock()
	began := time.Now()
	fatal.If(t, s.agent.Write(map[string]string{"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"})}))
	var denied time.Duration
	for i := 0; time.Since(began) < held || denied == 0 && time.Since(began) < eventLimit; i++ {
		asked := time.Now()
		for _, a := range s.resolve("a", fmt.Sprintf("b%d.wild.example.org", i), dns.TypeA) {
			s.expect("a", "tcp", netip.AddrPortFrom(a, 80).String(), lab.Answered)
		}
		if took := time.Since(asked); took > held/2 {
			t.Errorf("an answer and its connection took %v while the lock was held", took)
		}
		if got := s.Pod("b").Probe("tcp", addrPort("198.51.100.2:80")); denied == 0 && got != lab.Answered {
			denied = time.Since(began)
		} else if denied != 0 && got == lab.Answered {
			t.Error("a pod that became selected was denied, and is open again")
		}
		if _, err := s.agent.Status(); err != nil {
			t.Errorf("%v after the lock was taken the agent says nothing of itself: %v", time.Since(began), err)
		}
	}
	free := time.Since(began)
	release()
	if denied == 0 {
		t.Error("a pod that became selected was open for as long as the lock was held")
	}
	if err := s.agent.WaitFor("what the lock held up", func(st lab.Status) bool { return st.InSync && st.Enforcer.Selected == 2 }); err != nil {
		t.Error(err)
	}
	s.resolve("b", "www.example.org", dns.TypeA)
	s.eventually("b", "198.51.100.1:80", lab.Answered)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Refused)
	stop("while the lock is held")
	t.Logf("the lock is free after %v, the pod that became selected is denied after %v", free.Round(time.Millisecond), denied.Round(time.Millisecond))
}

// holdLock takes the lock of iptables on the node, as soon as the agent does not have it,
// until release or the end of the test.
func (s *stage) holdLock() (release func()) {
	s.t.Helper()
	lock, err := os.Open(lab.XtablesLock(s.Node.Name))
	fatal.If(s.t, err)
	release = sync.OnceFunc(func() { _ = lock.Close() }) // which gives the lock back
	s.t.Cleanup(release)
	fatal.If(s.t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	return release
}
