package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
)

const (
	// withSnapshots is the state of figures that were taken while snapshots followed
	// each other, noSnapshots the same agent while none came.
	withSnapshots, noSnapshots = "snapshots", "no-snapshots"
	// folderRead is in the agent's log each time that it has read its folder, which it
	// does 100 ms after the last change; logPoll is how often the log is looked at.
	folderRead = "manifests read"
	logPoll    = 2 * time.Millisecond
	// minSnapshots is how many snapshots a second have to come into force, of nearly
	// ten on a quiet machine.
	minSnapshots = 5
)

// snapshots measures kept answers while pods of other nodes come and go, and without
// that, in turns as short as those of the audit log.
func (b *bench) snapshots() error {
	g, err := b.gate(raised)
	if err != nil {
		return err
	}
	still, moving := g.target(), g.target()
	still.name, moving.changes = noSnapshots, true
	file, err := b.keptQuestions()
	if err != nil {
		return err
	}
	if err := b.wake(still); err != nil {
		return err
	}
	if err := b.prime(still, file); err != nil {
		return err
	}
	const name = "dns.cached"
	short := *b
	short.options.rounds, short.span = b.options.rounds*auditTurns, max(b.span/auditTurns, time.Second)
	ask := func() (string, error) { return file, nil }
	samples, err := short.rotate(name, []target{moving, still}, 0, ask)
	if err != nil {
		return err
	}
	if err := enough(samples[moving.name]); err != nil {
		return err
	}
	for _, k := range []kind{cpuOf, qpsOf} {
		own, peer := k.read(samples[moving.name]), k.read(samples[still.name])
		f := figure.Figure{Name: name + k.name, Value: own.Median(), Unit: k.unit, State: withSnapshots}
		if err := b.Report(f.Against(noSnapshots, peer.Median()), max(own.Others(), peer.Others())); err != nil {
			return err
		}
	}
	return b.profiled(name, moving, ask)
}

// churn changes a pod of another node, and does so again as soon as the agent has read
// that, until stop is called.
func (g *gate) churn() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.change(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func (g *gate) change(ctx context.Context) error {
	log, err := os.Open(filepath.Join(g.agent.Dir, "agent.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	for i := 0; ; i++ {
		if err := g.agent.Write(map[string]string{"pod-elsewhere.yaml": elsewhere(i)}); err != nil {
			return err
		}
		for read := false; !read; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			news, err := io.ReadAll(log)
			if err != nil {
				return err
			}
			read = bytes.Contains(news, []byte(folderRead))
		}
	}
}

// elsewhere is the manifest of a pod of another node at its i-th address.
func elsewhere(i int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: elsewhere, uid: elsewhere-%d}\n"+
		"spec: {nodeName: another-node, containers: []}\nstatus: {phase: Running, podIPs: [{ip: 10.1.1.%d}]}\n", manifestSpace, i, 1+i%250)
}

// enough returns an error if too few snapshots came into force while these samples
// were taken.
func enough(samples []sample) error {
	if rate := snapshotsOf.read(samples).Median(); rate < minSnapshots {
		return fmt.Errorf("only %.1f snapshots a second came into force: that is not what is to be measured", rate)
	}
	return nil
}
