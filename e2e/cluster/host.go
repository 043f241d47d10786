package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/netns"
)

// Host is one machine of the cluster: namespaces and the process that holds them.
type Host struct {
	// Name is the host's, for example "node-a".
	Name string
	// pid is the holder's.
	pid int
}

// netnsPrefix begins the names under which `ip netns` knows the hosts.
const netnsPrefix = "ngk-"

// newHost makes a host. Init is the program that holds it, see Init.
func newHost(init, name string) (*Host, error) {
	dir := hostDir(name)
	for _, d := range []string{dir, pidDir, logDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("make host %s: %w", name, err)
		}
	}
	log, err := openLog(name + "-init")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ready, done, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	defer ready.Close()
	cmd := exec.Command(init, "init", name)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{done}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
	}
	err = cmd.Start()
	done.Close()
	if err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	h := &Host{Name: name, pid: cmd.Process.Pid}
	go func() { _ = cmd.Wait() }()
	if err := writeHolder(name, h.pid); err != nil {
		return h, err
	}
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		return h, fmt.Errorf("host %s did not come up, see its log: %w", name, err)
	}
	if err := run("ip", "netns", "attach", netnsPrefix+name, strconv.Itoa(h.pid)); err != nil {
		return h, err
	}
	// Addresses are ours alone: duplicate address detection would only delay.
	if err := h.Sysctl("net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0",
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil {
		return h, err
	}
	return h, h.ip("link set lo up")
}

// etc are the host's own files in /etc: its programs ask the world's resolver.
var etc = map[string]string{
	"resolv.conf": "nameserver " + Resolver4.String() + "\n",
	"hosts":       "127.0.0.1 localhost\n::1 localhost\n",
}

// Init is the first process of a host: it makes the mounts that the host sees
// alone, and then only reaps. /var/lib, /var/log, /run and some files of /etc are the host's
// own, so that kubelet and containerd use the paths that they use everywhere.
func Init(name string) error {
	done := os.NewFile(3, "ready")
	dir := hostDir(name)
	for file, text := range etc {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return fmt.Errorf("make a file of host %s: %w", name, err)
		}
	}
	for _, own := range []string{"lib", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, own), 0o755); err != nil {
			return fmt.Errorf("make a folder of host %s: %w", name, err)
		}
	}
	mounts := []struct {
		what, where, kind string
		flags             uintptr
	}{
		// Nothing goes out to the machine, but inside mounts are shared, as kubelet expects.
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"", "/", "", unix.MS_REC | unix.MS_SHARED},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
		{filepath.Join(dir, "lib"), "/var/lib", "", unix.MS_BIND},
		{filepath.Join(dir, "log"), "/var/log", "", unix.MS_BIND},
		{filepath.Join(dir, "resolv.conf"), "/etc/resolv.conf", "", unix.MS_BIND},
		{filepath.Join(dir, "hosts"), "/etc/hosts", "", unix.MS_BIND},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.what, m.where, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("host %s: mount %s: %w", name, m.where, err)
		}
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("host %s: set its name: %w", name, err)
	}
	if _, err := done.Write([]byte{1}); err != nil {
		return fmt.Errorf("host %s: tell that it is up: %w", name, err)
	}
	done.Close()
	reap()
	return nil
}

// reap waits for children for ever, also for those whose parents ended before.
func reap() {
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			time.Sleep(time.Second)
		}
	}
}

// Command prepares a program that is to run in the host, with the host's mounts.
// Cancelling ctx does not end the program itself: it is for what ends soon.
func (h *Host) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-m", "-n", "-u", "-p", "--", program}, args...)...)
}

// NetCommand prepares a program that runs in the host's network alone, with the
// machine's files. Cancelling ctx ends it.
func (h *Host) NetCommand(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-n", "--", program}, args...)...)
}

// Run runs a program in the host and returns its standard output. The error has
// what it said on its error output.
func (h *Host) Run(program string, args ...string) (string, error) {
	out, err := output(h.Command(context.Background(), program, args...), "", program, args)
	if err != nil {
		err = fmt.Errorf("on %s: %w", h.Name, err)
	}
	return out, err
}

// ip runs the program ip in the host with the words of a line.
func (h *Host) ip(line string) error {
	return run("nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-n", "--", "ip"}, strings.Fields(line)...)...)
}

// Do runs f with its thread in the host's network. Sockets that f opens stay there.
func (h *Host) Do(f func() error) error {
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.pid))
	if err != nil {
		return fmt.Errorf("open the network of %s: %w", h.Name, err)
	}
	defer there.Close()
	return netns.Do(h.Name, there, f)
}

// Dial connects from the host to a literal address.
func (h *Host) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var c net.Conn
	err := h.Do(func() error {
		var err error
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Sysctl sets kernel parameters of the host's network, written as name=value.
func (h *Host) Sysctl(settings ...string) error {
	return h.Do(func() error { return netns.Sysctl(settings...) })
}

func run(program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
