package handover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestOneAgentPerNetworkNamespace: neither the same socket nor another one lets a second
// agent, or a cleanup, write in the network namespace of the first.
func TestOneAgentPerNetworkNamespace(t *testing.T) {
	dir := t.TempDir()
	name := fmt.Sprintf("@namegate-test-%d", os.Getpid())
	a, b := filepath.Join(dir, "a", "agent.sock"), filepath.Join(dir, "b", "agent.sock")
	release, err := Lock{a, name}.Claim()
	fatal.If(t, err)
	for socket, want := range map[string]string{
		a: "another agent runs with socket " + a,
		b: "another agent runs in this network namespace",
	} {
		if _, err := (Lock{socket, name}).Claim(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "stop it first") {
			t.Errorf("a second one with %s: %v", socket, err)
		}
	}
	release()
	again, err := Lock{b, name}.Claim() // the refused try has released its path
	fatal.If(t, err)
	again()
}
