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
	"github.com/namegate/namegate/enforcer/conntrack"
	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/enforcer/iptables"
	"github.com/namegate/namegate/enforcer/link"
	"github.com/namegate/namegate/enforcer/nft"
	"github.com/namegate/namegate/policy"
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
		a, err := b.applyOnce()
		if err != nil {
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

// applyOnce lets a child apply in the namespace of a new node: iptables works on the
// namespace of the whole process.
func (b *bench) applyOnce() (a applied, err error) {
	n, err := b.newNode("apply", clientNumber, true)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, n.remove()) }()
	self, err := os.Executable()
	if err != nil {
		return a, err
	}
	own, err := os.Readlink(ownNetwork)
	if err != nil {
		return a, err
	}
	cmd := exec.CommandContext(b.Context, self, "apply", own, fmt.Sprint(b.rounds))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := n.Node.Do(cmd.Start); err != nil {
		return a, err
	}
	err = cmd.Wait()
	if b.Context.Err() != nil {
		return a, ground.ErrInterrupted
	}
	if err != nil {
		return a, fmt.Errorf("apply: %w: %s", err, said.String())
	}
	return a, json.Unmarshal(out.Bytes(), &a)
}

// ownNetwork names the network namespace of a process.
const ownNetwork = "/proc/self/ns/net"

// applyChild is applyOnce's child; outside is the namespace that it must not be in.
func applyChild(outside string, rounds int, out io.Writer) error {
	if here, err := os.Readlink(ownNetwork); err != nil || here == outside {
		return fmt.Errorf("this changes rules and is not in a namespace of its own: %w", err)
	}
	e, err := openEnforcer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := e.Start(ctx); err != nil {
		return err
	}
	var a applied
	in, c := cluster(spaces[0]), policy.NewCompiler()
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

// openEnforcer is an enforcer on the kernel's own sets, chains and tables.
func openEnforcer() (*enforcer.Enforcer, error) {
	chains, err := iptables.NewExec(iptables.Default)
	if err != nil {
		return nil, err
	}
	tables, err := nft.Open(enforcer.DefaultMark)
	if err != nil {
		return nil, err
	}
	sets, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	flows, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	links, err := link.Open()
	if err != nil {
		return nil, err
	}
	return enforcer.New(enforcer.Config{Mark: enforcer.DefaultMark, Hold: enforcer.DefaultHold},
		enforcer.Kernel{Sets: sets, Chains: chains, Tables: tables, Flows: flows, Links: links}, nil, slog.New(slog.DiscardHandler))
}
