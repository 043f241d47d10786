package enforcer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// auditLog is what the kernel of a node logs for Audit policies of the node.
type auditLog struct {
	p     *peering
	mu    sync.Mutex
	heard []nflog.Packet
}

// hearAudits collects them until the test's end.
func (p *peering) hearAudits(t *testing.T) *auditLog {
	t.Helper()
	l := &auditLog{p: p}
	var log *nflog.Kernel
	fatal.If(t, p.Node.Do(func() (err error) { log, err = nflog.Open(layout.LogGroup, slog.Default()); return err }))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- log.Packets(ctx, func(packet nflog.Packet) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if strings.HasPrefix(packet.Prefix, nflog.PrefixNodeAudited) {
				l.heard = append(l.heard, packet)
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	fatal.Await(t, "the group of the log is bound", func() bool {
		bound, err := p.Node.Run("cat", "/proc/net/netfilter/nfnetlink_log")
		return err == nil && strings.TrimSpace(bound) != ""
	})
	return l
}

// forget has every connection logged again.
func (l *auditLog) forget() {
	l.p.t.Helper()
	for _, set := range []string{"watched4", "watched6"} {
		_, err := l.p.Node.Run("nft", "flush", "set", "inet", "namegate", set)
		fatal.If(l.p.t, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = nil
}

// directionWords are the direction of rules, as a prefix of the log has it.
var directionWords = map[bool]string{true: audit.Ingress, false: audit.Egress}

// wouldDeny are the lists of rules that Audit policies would deny a flow by, as the log has them.
func (l *auditLog) wouldDeny(v *policy.View, f policy.Flow) (out []string) {
	if _, by := policy.EvaluateNode(v, l.p.snapshot, &f); f.In == "lo" || f.Out == "lo" || by != nil && by.Traffic > policy.Forwarded {
		return nil // it skips rules
	}
	for t := range policy.Untracked + 1 {
		for _, ingress := range []bool{true, false} {
			at, comes, leaves := f, f.In != "" && ingress, f.Out != "" && !ingress && (f.In == "" || t == policy.Forwarded)
			switch forwarded := f.In != "" && f.Out != ""; {
			case !comes && !leaves, (t == policy.Forwarded) != forwarded && t < policy.BeforeNAT, t == policy.Local && !ingress:
				continue
			case t == policy.BeforeNAT, t == policy.Untracked:
				if at.Reached = f.Dialled; f.In == "" && f.Dialled != f.Reached {
					at.Out = "out0"
				}
			default:
				at.Dialled = f.Reached
			}
			enforced, _ := policy.EvaluateTraffic(v, l.p.snapshot, &at, t, ingress)
			at.Would = true
			if would, by := policy.EvaluateTraffic(v, l.p.snapshot, &at, t, ingress); enforced && !would && by.Audit {
				out = append(out, fmt.Sprintf("%s%s %s %s to %s", nflog.PrefixNodeAudited, t, directionWords[ingress], f.Protocol, at.Reached))
			}
		}
	}
	return out
}

// equal expects that the log has what was expected of flows, and nothing that Audit policies would not deny, and
// returns how much it has.
func (l *auditLog) equal(t *testing.T, v *policy.View, want map[string]bool) int {
	t.Helper()
	has := func() (missing []string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for line := range want {
			if !slices.ContainsFunc(l.heard, func(p nflog.Packet) bool {
				return line == fmt.Sprintf("%s%s to %s", p.Prefix, policy.Protocol(p.Protocol), p.Destination)
			}) {
				missing = append(missing, line)
			}
		}
		return missing
	}
	for until := time.Now().Add(lab.Limit); len(has()) > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	missing := has()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range missing {
		ofPrefix := 0
		for _, p := range l.heard {
			if strings.HasPrefix(line, p.Prefix) {
				ofPrefix++
			}
		}
		if ofPrefix < 10 { // else the share of the log may be used up
			t.Errorf("not logged: %s", line)
		}
	}
	fatal.If(t, l.p.Node.Do(func() error {
		for _, p := range l.heard {
			words := strings.Fields(strings.TrimPrefix(p.Prefix, nflog.PrefixNodeAudited))
			f := policy.Flow{Protocol: policy.Protocol(p.Protocol), Source: p.Source, Dialled: p.Destination, Reached: p.Destination, Would: true}
			for _, at := range []struct {
				index int
				name  *string
			}{{p.In, &f.In}, {p.Out, &f.Out}} {
				if i, err := net.InterfaceByIndex(at.index); err == nil {
					*at.name = i.Name
				}
			}
			for traffic := range policy.Untracked + 1 {
				if traffic.String() != words[0] {
					continue
				}
				if would, by := policy.EvaluateTraffic(v, l.p.snapshot, &f, traffic, words[1] == audit.Ingress); would {
					t.Errorf("logged is %sfrom %s to %s, in by %s and out by %s, which is allowed by %s", p.Prefix, p.Source, p.Destination, f.In, f.Out, ruleTexts([]*policy.Rule{by}))
				}
			}
		}
		return nil
	}))
	return len(l.heard)
}
