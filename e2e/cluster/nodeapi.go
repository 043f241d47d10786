package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
)

// nodeAPIServer is where an API server on a node is asked on the node itself.
var nodeAPIServer = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), APIServer.Port())

// StartAPIServer starts a second API server, on a node, as kubeadm has it on a control-plane node:
// etcd answers at 127.0.0.1 of the node, and Services are reached through the node's kube-proxy.
// Clients of the Service kubernetes are not led to it. It returns when the API server is ready;
// stop ends it.
func (n *Node) StartAPIServer(ctx context.Context) (stop func() error, err error) {
	etcd, err := n.forward(strings.TrimPrefix(etcdURL, "http://"), n.cluster.control)
	if err != nil {
		return nil, err
	}
	stop = func() error { return errors.Join(n.kill("kube-apiserver"), etcd.Close()) }
	err = n.begin("kube-apiserver", n.cluster.tool("kube-apiserver"), append(apiServerFlags(n.site), "--endpoint-reconciler-type=none")...)
	if err == nil {
		err = waitAPIServer(ctx, n.Host, nodeAPIServer)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// Kubectl is Cluster.Kubectl by the API server of the node.
func (n *Node) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := n.NetCommand(ctx, n.cluster.tool("kubectl"), append([]string{"--server=https://" + nodeAPIServer.String()}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+AdminConfig, "HOME="+hostDir(n.Name))
	return output(cmd, stdin, "kubectl", args)
}

// forward leads TCP connections to an address of the host to the same address of another one, past
// the network between them, until it is closed. Connections end with either side.
func (h *Host) forward(addr string, to *Host) (io.Closer, error) {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				other, err := to.Dial(context.Background(), "tcp", addr)
				if err != nil {
					return
				}
				defer other.Close()
				go func() {
					_, _ = io.Copy(other, c)
					other.Close()
				}()
				_, _ = io.Copy(c, other)
			}()
		}
	}()
	return l, nil
}
