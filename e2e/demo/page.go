package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// page is `namegate ui` of the demo's agent.
type page struct {
	address string
	end     func()
}

// openPage serves the page until end is called or ctx ends.
func (s *stage) openPage(ctx context.Context) (*page, error) {
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, s.binary, "ui", "--socket", s.agent.Socket())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	cmd.Stderr = &said
	p := &page{end: func() { stop(); _ = cmd.Wait() }}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.end()
		return nil, fmt.Errorf("read the page's address: %w: %s", err, said.String())
	}
	p.address = strings.TrimSpace(address)
	return p, nil
}
