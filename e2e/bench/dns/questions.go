package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/bench/load"
)

// newNames writes questions of new names, more than fit into a run.
func (b *bench) newNames() (string, error) {
	file := filepath.Join(b.Dir, "new.txt")
	count := int(b.span.Seconds() * fastest)
	err := writeQuestions(file, b.next, count, newName)
	b.next += count
	return file, err
}

// newName is the n-th new name.
func newName(n int) string { return fmt.Sprintf("n%d.w%d.%s", n, n%newZones, fake.NewZone) }

// writeQuestions writes questions as dnsperf reads them.
func writeQuestions(path string, first, count int, name func(int) string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for n := first; n < first+count; n++ {
		fmt.Fprintf(w, "%s A\n", name(n))
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("write questions: %w", err)
	}
	return nil
}

// prime lets a server answer every question of a file once, slowly.
func (b *bench) prime(t target, file string) error {
	r, _, err := b.dnsperf(t, dnsperf.Run{File: file, Once: true, Clients: 1, Outstanding: 20})
	if err == nil && r.Good != r.Sent {
		err = fmt.Errorf("%s did not answer everything: %+v", t.name, r)
	}
	return err
}

const (
	// wakeLimit is how long a server may take until it answers.
	wakeLimit = time.Minute
	wakeTry   = 200 * time.Millisecond
)

// wake waits until a server answers.
func (b *bench) wake(t target) error {
	query := load.Query(nil, 1, "wake."+fake.KeptZone)
	for until := time.Now().Add(wakeLimit); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		answered, err := try(t, query)
		if answered || err != nil {
			return err
		}
		if b.Context.Err() != nil {
			return ground.ErrInterrupted
		}
		if b.peers != nil {
			if err := b.peers.failed(); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s does not answer at %s", t.name, t.at)
}

// try asks once; an error is one of the client's own side.
func try(t target, query []byte) (answered bool, err error) {
	c, err := t.pod.Dial("udp", t.at.String(), time.Second)
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", t.name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wakeTry)); err != nil {
		return false, fmt.Errorf("ask %s: %w", t.name, err)
	}
	if _, err := c.Write(query); err != nil {
		return false, nil // refused: it does not listen yet
	}
	n, err := c.Read(make([]byte, 2048))
	return err == nil && n > 0, nil
}
