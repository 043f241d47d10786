package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Dataplane returns the dataplane of the lab's agents, as the environment variable DATAPLANE
// has it: "iptables", "nftables", or "" for the agent's choice.
func Dataplane() string { return os.Getenv("DATAPLANE") }

var (
	dataplaneLine = regexp.MustCompile(`(?m)^\s*dataplane .*\n`)
	rootBlock     = regexp.MustCompile(`(?m)^\.(:[0-9]+)? \{\n`)
)

// withDataplane returns a Corefile with a dataplane in the block of the root zone, in place
// of the one that it had; without any for "".
func withDataplane(corefile, name string) string {
	corefile = dataplaneLine.ReplaceAllString(corefile, "")
	if name == "" {
		return corefile
	}
	at := rootBlock.FindStringIndex(corefile)
	if at == nil {
		return corefile
	}
	return corefile[:at[1]] + "    dataplane " + name + "\n" + corefile[at[1]:]
}

// SetDataplane lets the agent's next process have another dataplane, "" for its choice.
func (a *Agent) SetDataplane(name string) error {
	text, err := os.ReadFile(a.path("Corefile"))
	if err != nil {
		return err
	}
	return os.WriteFile(a.path("Corefile"), []byte(withDataplane(string(text), name)), 0o644)
}

// OnlyPrograms fills a folder with links to programs, and returns the environment variable by
// which a process finds no others.
func OnlyPrograms(dir string, programs ...string) (path string, err error) {
	for _, name := range programs {
		at, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("find the program %s: %w", name, err)
		}
		if err := os.Symlink(at, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return "PATH=" + dir, nil
}
