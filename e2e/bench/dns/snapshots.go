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
	// does 100 ms after the last change; logPoll is how often the log is read.
	folderRead = "manifests read"
	logPoll    = 2 * time.Millisecond
)

// snapshots measures kept answers while pods of other nodes come and go, and without
// that, in turns as short as those of the audit log.
func (b *bench) snapshots() {
	g := b.gate(manner{limits: raised})
	still, moving := g.target(), g.target()
	still.name, moving.changes = noSnapshots, true
	b.wake(still)
	file := b.keptQuestions(still)
	b.compare(figure.Figure{Name: "dns.cached", State: withSnapshots}, []target{moving, still},
		b.Rounds*shortTurns, max(b.Span/shortTurns, time.Second), always(file))
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
