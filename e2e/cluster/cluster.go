package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// Cluster is a running cluster.
type Cluster struct {
	// Nodes are node-a, whose pods are routed, and node-b, whose pods hang on a bridge.
	Nodes                  []*Node
	fabric, control, world *Host
	// bin is the folder of programs.
	bin  string
	lock *os.File
}

// upTime bounds the start of a cluster.
const upTime = 5 * time.Minute

// Up brings a cluster up and returns when its DNS answers. What an earlier one
// left behind is removed first; one that another process is using is an error.
// On an error nothing stays but the logs.
func Up(ctx context.Context) (*Cluster, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a cluster needs namespaces and control groups: run it as root")
	}
	c, err := prepare()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	if err := c.up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("bring the cluster up (logs are in %s): %w", logDir, err), c.Down())
	}
	return c, nil
}

// prepare finds the programs, builds our own and takes the lock.
func prepare() (*Cluster, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: filepath.Join(dir, "bin/cluster")}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "containerd", "ctr", "coredns"} {
		if _, err := os.Stat(c.tool(name)); err != nil {
			return nil, fmt.Errorf("%s is not built; run: make e2e-tools: %w", name, err)
		}
	}
	if err := c.build(dir); err != nil {
		return nil, err
	}
	return c, c.takeLock()
}

// build builds the programs of this folder, static, so that they are whole
// container images.
func (c *Cluster) build(dir string) error {
	cmd := exec.Command("go", "build", "-o", c.bin+"/", "./e2e/cluster/stand", "./e2e/cluster/testpod", "./e2e/cluster/world")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the cluster's programs: %w: %s", err, out)
	}
	return nil
}

func (c *Cluster) tool(name string) string { return filepath.Join(c.bin, name) }

// Tool is the path of a program of the cluster, such as kubectl.
func (c *Cluster) Tool(name string) string { return c.tool(name) }

func (c *Cluster) up(ctx context.Context) error {
	if err := remove(false); err != nil {
		return err
	}
	if err := c.makeHosts(); err != nil {
		return err
	}
	if err := errors.Join(certify(), c.writeImages()); err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		if err := errors.Join(c.startWorld(), c.startEtcd()); err != nil {
			return err
		}
		if err := c.StartAPIServer(ctx); err != nil {
			return err
		}
		return c.startControllers()
	})
	for _, n := range c.Nodes {
		both.Go(func() error { return errors.Join(makeCgroups(n.Name), n.startContainerd(ctx)) })
	}
	if err := both.Wait(); err != nil {
		return err
	}
	return c.join(context.WithoutCancel(ctx))
}

// join starts the nodes' Kubernetes programs and the cluster's DNS, once there
// is an API server, and waits for all of them.
func (c *Cluster) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return c.applyDNS(ctx) })
	for _, n := range c.Nodes {
		all.Go(func() error {
			if err := n.startKubelet(DNS4); err != nil {
				return err
			}
			for _, tarball := range []string{podTarball, dnsTarball} {
				if err := n.Load(tarball); err != nil {
					return err
				}
			}
			return n.register(ctx)
		})
		all.Go(func() error { return n.RestartKubeProxy(ctx, IPTables) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return c.waitDNS(context.WithoutCancel(ctx))
}

func (c *Cluster) makeHosts() error {
	sites := append([]site{worldSite, controlSite}, nodeSites...)
	var err error
	if c.fabric, err = newHost(c.tool("stand"), "fabric"); err != nil {
		return err
	}
	if err := errors.Join(c.fabric.ip("link add br0 type bridge"), c.fabric.ip("link set br0 up")); err != nil {
		return err
	}
	for _, s := range sites {
		h, err := newHost(c.tool("stand"), s.name)
		if err != nil {
			return err
		}
		c.place(h, s)
		if err := plug(c.fabric, h, s); err != nil {
			return err
		}
	}
	for _, s := range sites {
		for _, line := range routes(s) {
			if err := c.host(s.name).ip(line); err != nil {
				return err
			}
		}
	}
	// Bridged packets pass netfilter on the node that has a bridge.
	return c.Nodes[1].Sysctl("net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1")
}

func (c *Cluster) place(h *Host, s site) {
	switch s.name {
	case worldSite.name:
		c.world = h
	case controlSite.name:
		c.control = h
	default:
		c.Nodes = append(c.Nodes, &Node{Host: h, site: s, cluster: c})
	}
}

func (c *Cluster) host(name string) *Host {
	switch name {
	case worldSite.name:
		return c.world
	case controlSite.name:
		return c.control
	}
	return c.Node(name).Host
}

// Node returns a node by its name, nil without one.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// LogFolder is where the logs of the cluster's programs are, until the next Up.
func (c *Cluster) LogFolder() string { return logDir }
