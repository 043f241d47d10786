package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Folder holds all that a cluster keeps in files. There is one cluster at a
// time, so that the next run finds what a killed one left behind.
const Folder = "/var/cache/namegate-e2e"

const (
	pidDir = Folder + "/pids"
	pkiDir = Folder + "/pki"
	// upFile says that the cluster came up.
	upFile   = pidDir + "/up"
	imageDir = Folder + "/images"
	// logDir outlives the cluster, until the next one begins.
	logDir = Folder + "/logs"
)

func hostDir(name string) string { return filepath.Join(Folder, "hosts", name) }

func openLog(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(logDir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	return f, nil
}

// A holder is known by its number and the moment of its start: the kernel gives
// numbers out again.
func writeHolder(name string, pid int) error {
	started, err := startOf(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(pidDir, name+".holder"), fmt.Appendf(nil, "%d %s\n", pid, started), 0o644)
}

// holder returns the process that holds a host, false if there is none any more.
func holder(name string) (pid int, ok bool) {
	text, err := os.ReadFile(filepath.Join(pidDir, name+".holder"))
	if err != nil {
		return 0, false
	}
	var started string
	if _, err := fmt.Sscan(string(text), &pid, &started); err != nil {
		return 0, false
	}
	now, err := startOf(pid)
	return pid, err == nil && now == started
}

// startOf is the 22nd field of a process's stat, in ticks since the machine's
// start. The second, its name, may hold blanks and brackets.
func startOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("find process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const start, name = 22, 2
	if len(fields) <= start-name-1 {
		return "", fmt.Errorf("find process %d: its stat is short", pid)
	}
	return fields[start-name-1], nil
}

// root returns the repository's folder, in which the running program was
// started or which is above that.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/namegate/namegate\n") {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("not inside a checkout of the repository")
		}
		dir = filepath.Dir(dir)
	}
}
