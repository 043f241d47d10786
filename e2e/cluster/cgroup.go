package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// cgroupName is the control group below which the nodes keep those of their
// pods, each node below its own name: a kubelet removes what is not its own.
const cgroupName = "namegate-e2e"

const cgroupFS = "/sys/fs/cgroup"

// podsWeight is how much of a busy processor the pods of all nodes get, in threads of
// the machine. On a node of its own their group weighs twice as much as all else there
// together (with two cores); here all else lies in the machine's root group, where each
// thread weighs as much as a group, and some ten of them are busy at worst.
const podsWeight = 20

// weights are the files that hold a group's weight, with that of one thread: of cgroup
// v1 and v2.
var weights = map[string]int{"cpu.shares": 1024, "cpu.weight": 100}

// cgroupRoots are the hierarchies: one, or with cgroup v1 one for each controller.
func cgroupRoots() ([]string, error) {
	if _, err := os.Stat(cgroupFS + "/cgroup.controllers"); err == nil {
		return []string{cgroupFS}, nil
	}
	found, err := filepath.Glob(cgroupFS + "/*/cgroup.procs")
	if err != nil || len(found) == 0 {
		return nil, errors.Join(errors.New("no control groups in "+cgroupFS), err)
	}
	for i, f := range found {
		found[i] = filepath.Dir(f)
	}
	return found, nil
}

func makeCgroups(node string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, r := range roots {
		for _, dir := range []string{filepath.Join(r, cgroupName), filepath.Join(r, cgroupName, node)} {
			if err := makeCgroup(dir); err != nil {
				return fmt.Errorf("make the control group of %s: %w", node, err)
			}
		}
		if err := weigh(filepath.Join(r, cgroupName)); err != nil {
			return fmt.Errorf("weigh the control group of all pods: %w", err)
		}
	}
	return nil
}

// makeCgroup makes one group. A cpuset begins empty: it takes what the one above has.
func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || len(bytes.TrimSpace(text)) > 0 {
			continue
		}
		if text, err = os.ReadFile(filepath.Join(filepath.Dir(dir), f)); err == nil {
			if err := os.WriteFile(filepath.Join(dir, f), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// weigh gives a group podsWeight, where the hierarchy is about processors.
func weigh(dir string) error {
	for file, one := range weights {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(podsWeight*one)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes all control groups of a cluster whose processes ended.
func removeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range roots {
		errs = append(errs, removeTree(filepath.Join(r, cgroupName)))
	}
	return errors.Join(errs...)
}

// removeTree removes control groups from the leaves up. The kernel lets go of a
// group a moment after its last process.
func removeTree(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs)
	for _, d := range dirs {
		deadline := time.Now().Add(5 * time.Second)
		for err = syscall.Rmdir(d); errors.Is(err, syscall.EBUSY) && time.Now().Before(deadline); err = syscall.Rmdir(d) {
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove control group %s: %w", d, err)
		}
	}
	return nil
}
