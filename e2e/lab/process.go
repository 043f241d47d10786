package lab

import (
	"fmt"
	"os"
	"strings"
)

// Resident returns how much memory of the running agent is in RAM, in bytes.
func (a *Agent) Resident() (int64, error) {
	a.mu.Lock()
	path := fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid)
	a.mu.Unlock()
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s has no VmRSS", path)
}
