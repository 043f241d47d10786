package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// switchRoot is where e2e/prepare unpacks Open vSwitch, from the folder of a package of tests
// two levels below the repository.
const switchRoot = "../../bin/openvswitch"

// The files of Debian's packages that a switch needs, below their root.
const (
	ovsdbTool   = "usr/bin/ovsdb-tool"
	ovsdbServer = "usr/sbin/ovsdb-server"
	ovsVSwitchd = "usr/lib/openvswitch-switch/ovs-vswitchd"
	ovsVsctl    = "usr/bin/ovs-vsctl"
	ovsSchema   = "usr/share/openvswitch/vswitch.ovsschema"
)

// openVSwitch is Open vSwitch in a node's namespace, with a folder of its own and a bridge br0
// of the userspace datapath: it takes the frames of the ports by packet sockets, and the
// bridge's own port is a tap.
type openVSwitch struct {
	node *Host
	root string // of the packages' files
	dir  string
	// processes are the database and the switch.
	processes []*exec.Cmd
}

// startSwitch starts Open vSwitch on the node and gives its bridge the addresses of br0.
func (l *Lab) startSwitch() (*openVSwitch, error) {
	root, err := filepath.Abs(switchRoot)
	if err != nil {
		return nil, fmt.Errorf("find Open vSwitch: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, ovsVSwitchd)); err != nil {
		return nil, fmt.Errorf("find the unpacked Open vSwitch, run e2e/prepare openvswitch-switch: %w", err)
	}
	dir, err := os.MkdirTemp("", "namegate-openvswitch-")
	if err != nil {
		return nil, fmt.Errorf("make the folder of Open vSwitch: %w", err)
	}
	s := &openVSwitch{node: l.Node, root: root, dir: dir}
	database := filepath.Join(dir, "conf.db")
	return s, inOrder([]func() error{
		func() error { return run(s.path(ovsdbTool), "create", database, s.path(ovsSchema)) },
		func() error { return s.start(ovsdbServer, database, "--remote=p"+s.socket()) },
		// Without the kernel's segmentation offload packets of pods have no checksums that count.
		func() error {
			return s.vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true")
		},
		func() error { return s.start(ovsVSwitchd, s.socket()) },
		func() error { return s.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev") },
		l.ip(l.Node, "addr add 10.1.0.1/24 dev br0"), l.ip(l.Node, "addr add fd00:1::1/64 dev br0 nodad"),
		l.ip(l.Node, "link set br0 up"),
	})
}

// joinSwitch makes a pod's link a port of the switch.
func (l *Lab) joinSwitch(p *Pod) error {
	return inOrder([]func() error{
		l.ip(l.Node, "link set "+p.Iface+" up"),
		func() error { return l.configure(p) },
		func() error { return l.ovs.vsctl("add-port", "br0", p.Iface) },
	})
}

func (s *openVSwitch) path(file string) string { return filepath.Join(s.root, file) }

func (s *openVSwitch) socket() string { return "unix:" + filepath.Join(s.dir, "db.sock") }

// start starts a program of the switch in the node's namespace, in the foreground.
func (s *openVSwitch) start(program string, args ...string) error {
	cmd := exec.Command(s.path(program), args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_LOGDIR="+s.dir, "OVS_DBDIR="+s.dir, "OVS_SYSCONFDIR="+s.dir,
		"OVS_PKGDATADIR="+s.path(filepath.Dir(ovsSchema)))
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(program)+".log"))
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.node.Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	s.processes = append(s.processes, cmd)
	return nil
}

// vsctl changes the database and waits until the switch has done as it says, with --no-wait
// for the database alone, and for at most Limit.
func (s *openVSwitch) vsctl(words ...string) error {
	_, err := s.node.Run(s.path(ovsVsctl), append([]string{"--retry", fmt.Sprintf("--timeout=%d", int(Limit/time.Second)), "--db=" + s.socket()}, words...)...)
	return err
}

// stop ends the switch and removes its folder; nil has nothing to end.
func (s *openVSwitch) stop() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, cmd := range s.processes {
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			errs = append(errs, fmt.Errorf("end %s: %w", cmd.Path, err))
		}
		_ = cmd.Wait() // it was killed
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
