package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Cgroup is a control group that bounds the memory of an agent, below what bounds
// the test itself.
type Cgroup struct {
	dir   string
	files cgroupFiles
}

// cgroupFiles are what one version calls a limit, the limit of swap (of both
// together, in version 1), what is used, and where the kernel counts whom it killed.
type cgroupFiles struct{ limit, swap, used, kills string }

var (
	cgroupV1 = cgroupFiles{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"}
	cgroupV2 = cgroupFiles{"memory.max", "memory.swap.max", "memory.current", "memory.events"}
)

const cgroupMount = "/sys/fs/cgroup"

// NewCgroup makes a control group without a limit.
func NewCgroup(name string) (*Cgroup, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	parent, files, err := memoryCgroup(string(text))
	if err != nil {
		return nil, err
	}
	c := &Cgroup{dir: filepath.Join(parent, name), files: files}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	if _, err := os.Stat(c.file(files.limit)); err != nil {
		return nil, errors.Join(fmt.Errorf("a control group here does not bound memory: %w", err), c.Remove())
	}
	return c, nil
}

// memoryCgroup returns where a group that bounds memory may be made, by what
// /proc/self/cgroup says: with version 1 in the process's own group, with version 2
// beside it, since there a group has processes or groups.
func memoryCgroup(text string) (dir string, files cgroupFiles, err error) {
	unified := ""
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(words) != 3 {
			continue
		}
		for c := range strings.SplitSeq(words[1], ",") {
			if c == "memory" {
				return filepath.Join(cgroupMount, "memory", words[2]), cgroupV1, nil
			}
		}
		if words[0] == "0" {
			unified = words[2]
		}
	}
	if unified == "" {
		return "", cgroupFiles{}, errors.New("this process is in no control group that bounds memory")
	}
	return filepath.Join(cgroupMount, filepath.Dir(unified)), cgroupV2, nil
}

func (c *Cgroup) file(name string) string { return filepath.Join(c.dir, name) }

// Take puts the running agent into the group. What it has used before counts where
// it was.
func (c *Cgroup) Take(a *Agent) error {
	a.mu.Lock()
	pid := a.cmd.Process.Pid
	a.mu.Unlock()
	return os.WriteFile(c.file("cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// Bound lets the group use so many bytes more than it does, in RAM alone.
func (c *Cgroup) Bound(more int64) error {
	text, err := os.ReadFile(c.file(c.files.used))
	if err != nil {
		return err
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return err
	}
	most := strconv.FormatInt(used+more, 10)
	if err := os.WriteFile(c.file(c.files.limit), []byte(most), 0); err != nil {
		return fmt.Errorf("bound the control group: %w", err)
	}
	if c.files == cgroupV2 {
		most = "0"
	}
	if err := os.WriteFile(c.file(c.files.swap), []byte(most), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("bound the control group's swap: %w", err)
	}
	return nil
}

// Kills returns how often the kernel has killed a process of the group since it had
// used up its memory.
func (c *Cgroup) Kills() (n int, err error) {
	text, err := os.ReadFile(c.file(c.files.kills))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s does not say whom the kernel killed", c.file(c.files.kills))
}

// Remove removes the group, whose processes have ended. The kernel lets go of it a
// moment after the last.
func (c *Cgroup) Remove() error {
	err := syscall.Rmdir(c.dir)
	for until := time.Now().Add(Limit); errors.Is(err, syscall.EBUSY) && time.Now().Before(until); err = syscall.Rmdir(c.dir) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("remove control group %s: %w", c.dir, err)
	}
	return nil
}
