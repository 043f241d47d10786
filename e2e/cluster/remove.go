package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const lockFile = Folder + ".lock"

// takeLock makes this process the one that has the cluster, until it ends.
func (c *Cluster) takeLock() error {
	if err := os.MkdirAll(filepath.Dir(lockFile), 0o755); err != nil {
		return fmt.Errorf("take the cluster's lock: %w", err)
	}
	f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("take the cluster's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("another process has the cluster (%s): %w", lockFile, err)
	}
	c.lock = f
	return nil
}

func (c *Cluster) releaseLock() {
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
}

// Down ends the cluster and removes all of it but the logs.
func (c *Cluster) Down() error {
	defer c.releaseLock()
	return remove(true)
}

// Leave lets the cluster stand: this process has no more to do with it.
func (c *Cluster) Leave() { c.releaseLock() }

// Clean removes a cluster that stands or that a killed run left behind.
func Clean() error {
	if os.Getuid() != 0 {
		return errors.New("removing a cluster needs root")
	}
	c := &Cluster{}
	if err := c.takeLock(); err != nil {
		return err
	}
	return c.Down()
}

// remove ends every host that the folder knows and deletes what it left. The
// logs of the last cluster stay if they are to be kept.
func remove(keepLogs bool) error {
	holders, err := filepath.Glob(filepath.Join(pidDir, "*.holder"))
	if err != nil {
		return fmt.Errorf("look for hosts: %w", err)
	}
	for _, f := range holders {
		if err := endHost(strings.TrimSuffix(filepath.Base(f), ".holder")); err != nil {
			return err
		}
	}
	if err := removeNames(); err != nil {
		return err
	}
	if err := removeCgroups(); err != nil {
		return err
	}
	dirs := []string{filepath.Join(Folder, "hosts"), pidDir, pkiDir, imageDir}
	if !keepLogs {
		dirs = append(dirs, logDir)
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

// endHost kills the process that holds a host, and waits until the kernel has
// ended all that ran in it.
func endHost(name string) error {
	pid, ok := holder(name)
	if !ok {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end host %s: %w", name, err)
	}
	for deadline := time.Now().Add(30 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("end host %s: process %d does not end", name, pid)
		}
	}
	return nil
}

// alive reports whether a process is more than an entry that its parent has not
// read yet.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// removeNames removes the names that `ip netns` knows the hosts by.
func removeNames() error {
	names, err := filepath.Glob("/run/netns/" + netnsPrefix + "*")
	if err != nil {
		return fmt.Errorf("look for network namespaces: %w", err)
	}
	for _, n := range names {
		if err := run("ip", "netns", "del", filepath.Base(n)); err != nil {
			return err
		}
	}
	return nil
}

// Attach returns the cluster that stands.
func Attach() (*Cluster, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: filepath.Join(dir, "bin/cluster")}
	find := func(name string) (*Host, error) {
		pid, ok := holder(name)
		if !ok {
			return nil, errors.New("no cluster stands; bring it up with: make e2e-up")
		}
		return &Host{Name: name, pid: pid}, nil
	}
	if c.fabric, err = find("fabric"); err != nil {
		return nil, err
	}
	for _, s := range append([]site{worldSite, controlSite}, nodeSites...) {
		h, err := find(s.name)
		if err != nil {
			return nil, err
		}
		c.place(h, s)
	}
	if _, err := os.Stat(upFile); err != nil {
		return nil, fmt.Errorf("the cluster is not up yet, or did not come up: %w", err)
	}
	return c, nil
}
