package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/namegate/namegate/e2e/cluster/probe"
)

// AdminConfig is the path of the administrator's kubeconfig.
const AdminConfig = pkiDir + "/admin.conf"

// Kubectl runs kubectl as the cluster's administrator and returns its standard
// output. Stdin is what it reads, for example with "apply -f -". The error has
// what it said on its error output.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return output(c.client(ctx, "kubectl", args...), stdin, "kubectl", args)
}

// CreateNamespace creates a namespace and waits for its default service account: until the
// account exists, the API server refuses pods.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	if _, err := c.Kubectl(ctx, "", "create", "namespace", name); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "", "wait", "--for=create", "serviceaccount/default", "--namespace="+name, "--timeout=60s")
	return err
}

// Helm runs helm as the cluster's administrator, like Kubectl.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return output(c.client(ctx, "helm", args...), "", "helm", args)
}

func (c *Cluster) client(ctx context.Context, name string, args ...string) *exec.Cmd {
	return c.Client(ctx, c.tool(name), args...)
}

// Client prepares a program that is a client of the API server as the cluster's
// administrator: KUBECONFIG is set, and it is in the control host's network.
func (c *Cluster) Client(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := c.control.NetCommand(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+AdminConfig, "HOME="+hostDir(c.control.Name))
	return cmd
}

func output(cmd *exec.Cmd, stdin, name string, args []string) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out.String(), nil
}

// PodRef is a pod's place in the cluster.
type PodRef struct{ Namespace, Name string }

// Exec runs a program in a pod through kubectl exec.
func (c *Cluster) Exec(ctx context.Context, pod PodRef, args ...string) (string, error) {
	return c.Kubectl(ctx, "", append([]string{"exec", "-n", pod.Namespace, pod.Name, "--"}, args...)...)
}

// Inside runs the test pods' program in a pod's network without the API server,
// as kubectl exec would. Args are those after the program's name.
func (c *Cluster) Inside(ctx context.Context, pod PodRef, args ...string) (string, error) {
	for _, n := range c.Nodes {
		pid, err := n.sandbox(pod)
		if err != nil {
			return "", err
		}
		if pid != "" {
			// The sandbox's own image is that of the test pods, its resolver the pod's.
			words := append([]string{"-t", pid, "-n", "-m", "--", podProgram}, args...)
			return output(n.Command(ctx, "nsenter", words...), "", "testpod", args)
		}
	}
	return "", fmt.Errorf("no node runs pod %s/%s", pod.Namespace, pod.Name)
}

// sandbox returns the number, as the node counts, of a process in a pod's
// network; "" if the node does not run the pod.
func (n *Node) sandbox(pod PodRef) (string, error) {
	filter := fmt.Sprintf(`labels."io.kubernetes.pod.namespace"==%s,labels."io.kubernetes.pod.name"==%s,labels."io.cri-containerd.kind"==sandbox`, pod.Namespace, pod.Name)
	running, err := n.running(filter)
	for _, pid := range running {
		return pid, nil
	}
	return "", err
}

// running returns the running containers of a filter of ctr, with the number of each one's first
// process as the node counts.
func (n *Node) running(filter string) (map[string]string, error) {
	found, err := n.ctr("containers", "list", "-q", filter)
	if err != nil {
		return nil, err
	}
	tasks, err := n.ctr("tasks", "list")
	if err != nil {
		return nil, err
	}
	pids := map[string]string{}
	for line := range strings.Lines(tasks) {
		f := strings.Fields(line) // TASK PID STATUS
		if len(f) == 3 && f[2] == "RUNNING" && strings.Contains(found, f[0]) {
			pids[f[0]] = f[1]
		}
	}
	return pids, nil
}

// Dial lets a pod connect to ADDRESS:PORT over tcp or udp and send a word.
func (c *Cluster) Dial(ctx context.Context, pod PodRef, network, to string) (probe.Dialled, error) {
	return ask[probe.Dialled](ctx, c, pod, "dial", network, to)
}

// Hello lets a pod begin TLS with a server name at an echo server.
func (c *Cluster) Hello(ctx context.Context, pod PodRef, to, name string) (probe.Dialled, error) {
	return ask[probe.Dialled](ctx, c, pod, "hello", to, name)
}

// Lookup lets a pod ask its own resolver, or one that server names, for a name.
func (c *Cluster) Lookup(ctx context.Context, pod PodRef, name, qtype, server string) (probe.Answer, error) {
	args := []string{"lookup", name, qtype}
	if server != "" {
		args = append(args, server)
	}
	return ask[probe.Answer](ctx, c, pod, args...)
}

// Get lets a pod look a name up and connect to each address of the answer in
// turn, until one works.
func (c *Cluster) Get(ctx context.Context, pod PodRef, network, name string, port int) (probe.Got, error) {
	return ask[probe.Got](ctx, c, pod, "get", network, name, fmt.Sprint(port))
}

// DNSLoad lets a pod ask at a constant rate, see probe.Load. It returns when the
// load has ended.
func (c *Cluster) DNSLoad(ctx context.Context, pod PodRef, l probe.Load) (probe.Loaded, error) {
	return ask[probe.Loaded](ctx, c, pod, append([]string{"load"}, l.Args()...)...)
}

func ask[T any](ctx context.Context, c *Cluster, pod PodRef, args ...string) (T, error) {
	var result T
	out, err := c.Exec(ctx, pod, append([]string{podProgram}, args...)...)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return result, fmt.Errorf("what %s said of %v: %w: %s", pod.Name, args, err, out)
	}
	return result, nil
}

// Follow runs kubectl as the cluster's administrator and calls line with each line
// of its standard output as it comes, until ctx ends, which is no error, or kubectl
// does.
func (c *Cluster) Follow(ctx context.Context, line func(string), args ...string) error {
	cmd := c.client(ctx, "kubectl", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line(lines.Text())
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// Become replaces this process by kubectl or helm as the cluster's administrator.
func (c *Cluster) Become(client string, args []string) error {
	return become(c.client(context.Background(), client, args...))
}

// BecomeOn replaces this process by a program on a host: node-a, node-b,
// control, world or fabric.
func (c *Cluster) BecomeOn(host string, args []string) error {
	pid, ok := holder(host)
	if !ok {
		return fmt.Errorf("there is no host %s", host)
	}
	h := &Host{Name: host, pid: pid}
	return become(h.Command(context.Background(), args[0], args[1:]...))
}

func become(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	return syscall.Exec(cmd.Path, cmd.Args, cmd.Env)
}

// Load gives every node the images of a tarball.
func (c *Cluster) Load(tarball string) error {
	path, err := filepath.Abs(tarball)
	if err != nil {
		return fmt.Errorf("load %s: %w", tarball, err)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	var all errgroup.Group
	for _, n := range c.Nodes {
		all.Go(func() error { return n.Load(path) })
	}
	return errors.Join(all.Wait())
}
