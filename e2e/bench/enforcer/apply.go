package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy/compile"
)

// applied is how long, in ms, it took to bring into force: everything on a node that
// had nothing, a change of names, a change of ports, a pod that goes and comes.
type applied struct {
	Full                float64
	Names, Ports, Comes []float64
}

// nodesApplied is how many nodes are set up, one after the other.
const nodesApplied = 3

// apply measures bringing snapshots into force in the kernel.
func (b *bench) apply() error {
	var full, names, ports, comes []float64
	for range nodesApplied {
		var a applied
		if err := b.onNewNode("apply", &a); err != nil {
			return err
		}
		full = append(full, a.Full)
		names, ports, comes = append(names, a.Names...), append(ports, a.Ports...), append(comes, a.Comes...)
	}
	for _, m := range []struct {
		name, state string
		of          []float64
	}{
		{"apply.full_ms", "", full}, {"apply.change_ms", "names", names}, {"apply.change_ms", "ports", ports}, {"apply.change_ms", "pod", comes},
	} {
		state := clusterState(spaces[0])
		if m.state != "" {
			state += ", " + m.state
		}
		b.Note("%s, %s: %.3g", m.name, state, figure.Median(m.of))
		if err := b.Report(figure.Figure{Name: m.name, Value: figure.Median(m.of), Unit: "ms", State: state}, 0); err != nil {
			return err
		}
	}
	return nil
}

// onNewNode lets a child of a role measure in the namespace of a new node: iptables
// works on the namespace of the whole process. What it says goes into into.
func (b *bench) onNewNode(role string, into any) (err error) {
	n, err := b.newNode(role, clientNumber, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.remove()) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	own, err := os.Readlink(ownNetwork)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(b.Context, self, role, own, fmt.Sprint(b.rounds))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := n.Node.Do(cmd.Start); err != nil {
		return err
	}
	err = cmd.Wait()
	if b.Context.Err() != nil {
		return ground.ErrInterrupted
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", role, err, said.String())
	}
	return json.Unmarshal(out.Bytes(), into)
}

// ownNetwork names the network namespace of a process.
const ownNetwork = "/proc/self/ns/net"

// applyChild is apply's child; outside is the namespace that it must not be in.
func applyChild(outside string, rounds int, out io.Writer) error {
	if err := inside(outside); err != nil {
		return err
	}
	e, _, err := openEnforcer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := e.Start(ctx); err != nil {
		return err
	}
	var a applied
	in, c := cluster(maxPolicies, spaces[0]), compile.New()
	force := func() (float64, error) {
		s := c.Compile(in)
		began := time.Now()
		err := e.Prepare(ctx, s)
		if err == nil {
			err = e.Commit(ctx)
		}
		return time.Since(began).Seconds() * 1e3, err
	}
	if a.Full, err = force(); err != nil {
		return err
	}
	all := in.Pods
	for turn := 1; turn <= rounds; turn++ {
		for _, step := range []struct {
			to *[]float64
			do func()
		}{
			{&a.Names, func() { in = changed(in, turn, false) }},
			{&a.Ports, func() { in = changed(in, turn, true) }},
			{&a.Comes, func() { in.Pods = all[1:] }},
			{&a.Comes, func() { in.Pods = all }},
		} {
			step.do()
			took, err := force()
			if err != nil {
				return err
			}
			*step.to = append(*step.to, took)
		}
	}
	return json.NewEncoder(out).Encode(a)
}

// inside returns an error unless the process is in another namespace than outside.
func inside(outside string) error {
	if here, err := os.Readlink(ownNetwork); err != nil || here == outside {
		return fmt.Errorf("this changes rules and is not in a namespace of its own: %w", err)
	}
	return nil
}

// openEnforcer is an enforcer on the kernel's own sets, chains and tables, and what it
// wrote to the sets.
func openEnforcer() (*enforcer.Enforcer, *written, error) {
	chains, err := iptables.NewExec(iptables.Default)
	if err != nil {
		return nil, nil, err
	}
	tables, err := nft.Open(nft.Bits{Admitted: enforcer.DefaultMark, Candidate: enforcer.DefaultCandidate})
	if err != nil {
		return nil, nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, nil, err
	}
	flows, err := conntrack.Open()
	if err != nil {
		return nil, nil, err
	}
	links, err := link.Open()
	if err != nil {
		return nil, nil, err
	}
	w := &written{Interface: sets}
	e, err := enforcer.New(enforcer.Config{Mark: enforcer.DefaultMark, Candidate: enforcer.DefaultCandidate, Hold: enforcer.DefaultHold},
		enforcer.Kernel{Dataplane: xtables.Config{Sets: w, Chains: chains}.New, Tables: tables, Flows: flows, Links: links}, nil, slog.New(slog.DiscardHandler))
	return e, w, err
}

// written counts the sets' entries that were written or removed, by the set.
type written struct {
	ipset.Interface
	entries map[string]int
}

// forget begins to count anew.
func (w *written) forget() { w.entries = map[string]int{} }

func (w *written) count(set string, entries int) {
	if entries > 0 && w.entries != nil {
		w.entries[set] += entries
	}
}

// Add counts and adds.
func (w *written) Add(name string, entries ...ipset.Entry) error {
	w.count(name, len(entries))
	return w.Interface.Add(name, entries...)
}

// Delete counts and deletes.
func (w *written) Delete(name string, entries ...ipset.Entry) error {
	w.count(name, len(entries))
	return w.Interface.Delete(name, entries...)
}

// Apply counts and applies.
func (w *written) Apply(ops []ipset.Op) {
	for i := range ops {
		w.count(ops[i].Set, len(ops[i].Entries))
	}
	w.Interface.Apply(ops)
}
