package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Process returns the number, as this machine counts, of the one process of the host's network whose
// command line has a text.
func (h *Host) Process(text string) (int, error) {
	out, err := output(exec.CommandContext(context.Background(), "pgrep", "--ns", strconv.Itoa(h.pid), "--nslist", "net", "-f", text), "", "pgrep", []string{text})
	if err != nil {
		return 0, err
	}
	found := strings.Fields(out)
	if len(found) != 1 {
		return 0, fmt.Errorf("processes of %s with %q: %v", h.Name, text, found)
	}
	return strconv.Atoi(found[0])
}
