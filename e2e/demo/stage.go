package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/namegate/namegate/e2e/lab"
)

// The pods of examples/manifests/pods.yaml: the last part of their addresses.
var podNumbers = map[string]int{client: 10, neighbour: 11, visitor: 12}

const (
	client    = "client"    // selected by both policies
	neighbour = "neighbour" // selected by allow-web
	visitor   = "visitor"   // selected by none
)

// stage is a lab, its outside world and an agent that serves.
type stage struct {
	*lab.Lab
	outside *lab.Outside
	web     *web
	agent   *lab.Agent
	binary  string
	// dir is the agent's folder.
	dir string
}

// newStage builds everything and waits until the agent intercepts. With an
// error too what it returns is to be removed, unless it is nil.
func newStage(o options) (*stage, error) {
	binary, err := filepath.Abs(o.agent)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", o.agent, err)
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("no agent: %w; build it with: make build", err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("make a folder for the agent: %w", err)
	}
	s := &stage{binary: binary, dir: dir}
	if s.Lab, err = lab.New(lab.Routed); err != nil {
		return s, err
	}
	for _, name := range []string{client, neighbour, visitor} {
		if _, err := s.AddPod(name, podNumbers[name]); err != nil {
			return s, err
		}
	}
	if err := s.Ready(); err != nil {
		return s, err
	}
	if s.outside, err = s.ServeWorld(answer); err != nil {
		return s, err
	}
	if s.web, err = serveWeb(s.World); err != nil {
		return s, err
	}
	return s, s.startAgent(o.examples)
}

func (s *stage) startAgent(examples string) error {
	corefile, err := os.ReadFile(filepath.Join(examples, "Corefile"))
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	files, err := manifests(filepath.Join(examples, "manifests"))
	if err != nil {
		return err
	}
	// The demo's log is in its own folder; the lab puts the path for AUDIT.
	text := strings.Replace(string(corefile), auditPath, "AUDIT", 1)
	if s.agent, err = s.NewAgent(s.binary, s.dir, text); err != nil {
		return fmt.Errorf("prepare the agent: %w", err)
	}
	if err := s.agent.Write(files); err != nil {
		return fmt.Errorf("copy the manifests: %w", err)
	}
	if s.nftAlone() {
		programs := filepath.Join(s.dir, "programs")
		if err := os.Mkdir(programs, 0o755); err != nil {
			return fmt.Errorf("hide programs from the agent: %w", err)
		}
		path, err := lab.OnlyPrograms(programs, "nft")
		if err != nil {
			return err
		}
		s.agent.Env, s.agent.NoXtables = []string{path}, true
		if err := s.agent.SetDataplane(""); err != nil {
			return fmt.Errorf("leave the choice of the dataplane to the agent: %w", err)
		}
	}
	return s.agent.Start()
}

// nftAlone tells whether the node has neither the programs of iptables and ipset nor, for the
// agent, their part of the kernel.
func (s *stage) nftAlone() bool { return lab.Dataplane() == "nftables" }

// auditPath is where examples/Corefile writes the audit log.
const auditPath = "/var/log/namegate/audit.log"

// manifests returns the files of a folder by name.
func manifests(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the example manifests: %w", err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the example manifests: %w", err)
		}
		files[e.Name()] = string(text)
	}
	return files, nil
}

// remove takes everything down, in the reverse order, and goes on after errors.
func (s *stage) remove() error {
	var errs []error
	if s.agent != nil {
		if err := s.agent.Stop(syscall.SIGKILL); err != nil {
			errs = append(errs, fmt.Errorf("stop the agent: %w", err))
		}
	}
	if s.web != nil {
		s.web.close()
	}
	if s.outside != nil {
		s.outside.Close()
	}
	if s.Lab != nil {
		_ = s.Lab.Remove() // what is left is tried again
	}
	errs = append(errs, removeOf(os.Getpid()))
	return errors.Join(errs...)
}
