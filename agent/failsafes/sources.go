package failsafes

import (
	"errors"
	"reflect"

	"github.com/namegate/namegate/agent/failsafes/hostfiles"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// source is a part of the inputs that is read.
type source struct {
	name string
	// read replaces the source's part of the inputs, and tells whether it changed.
	read func(in *Inputs) (changed bool, err error)
	// advice is what to write in the Corefile, and protocol and ports what settles the
	// finding; "" where nothing does.
	advice   string
	protocol policy.Protocol
	ports    func(in *Inputs) []uint16

	known bool  // it was read
	err   error // of the last reading
}

// set replaces a value by one that was read.
func set[T any](at *T, v T, err error) (bool, error) {
	if err != nil || reflect.DeepEqual(*at, v) {
		return false, err
	}
	*at = v
	return true, nil
}

func one(port uint16) func(*Inputs) []uint16 {
	return func(*Inputs) []uint16 { return []uint16{port} }
}

// fileSources are the files of the host. A host without a cluster has no kubelet.
func fileSources(root hostfiles.Root, cluster bool) (all []*source) {
	if cluster {
		all = clusterFileSources(root)
	}
	return append(all, []*source{
		{
			name: "time servers", protocol: policy.UDP, ports: one(123),
			advice: "write `failsafe ADDRESS:123/udp` with their addresses in the Corefile",
			read: func(in *Inputs) (bool, error) {
				v, err := root.TimeServers()
				return set(&in.TimeServers, v, err)
			},
		},
		{
			name: "resolvers of the host", protocol: policy.UDP, ports: one(53),
			advice: "let the agent read /etc/resolv.conf (nodes.hostFiles of the chart), or write `failsafe ADDRESS:53` with their addresses in the Corefile",
			read: func(in *Inputs) (bool, error) {
				v, err := root.Resolvers()
				if err == nil {
					err = v.Since(&in.Resolvers)
				}
				return set(&in.Resolvers, v, err)
			},
		},
	}...)
}

// clusterFileSources are the files of a host that is a node of a cluster.
func clusterFileSources(root hostfiles.Root) []*source {
	return []*source{
		{
			name: "kubeconfig of the kubelet", protocol: policy.TCP, ports: (*Inputs).apiServerPorts,
			advice: "let the agent read it (nodes.hostFiles of the chart), or write `failsafe ADDRESS:PORT` with the API servers' addresses in the Corefile",
			read: func(in *Inputs) (bool, error) {
				v, err := root.Kubelet()
				if err == nil {
					err = v.Since(&in.Kubelet)
				}
				return set(&in.Kubelet, v, err)
			},
		},
		{
			name: "members of etcd", protocol: policy.TCP, ports: one(etcdFirst),
			advice: "write `failsafe ADDRESS:2379/tcp` with their addresses in the Corefile",
			read: func(in *Inputs) (bool, error) {
				v, err := root.Etcd()
				return set(&in.Etcd, v, err)
			},
		},
	}
}

// underlaySources are the tables of the kernel.
func underlaySources(o *Options) []*source {
	return []*source{
		{name: "tunnels", read: func(in *Inputs) (bool, error) {
			v, err := o.Underlay.Tunnels()
			return set(&in.Tunnels, v, err)
		}},
		{name: "routing tables", read: func(in *Inputs) (bool, error) {
			v, err := o.Underlay.NextHops()
			return set(&in.NextHops, v, err)
		}},
		{name: "TCP sockets of the node", read: func(in *Inputs) (bool, error) {
			v, err := o.Underlay.Sessions()
			if v.Listens && len(v.Peers) == 0 { // all sessions are down: the last peers are dialled again
				v.Peers = in.Sessions.Peers
			}
			return set(&in.Sessions, v, err)
		}},
	}
}

// refresh reads the source, and tells whether the failsafes may have changed.
func (s *source) refresh(in *Inputs) (changed bool) {
	changed, err := s.read(in)
	changed = changed || (err == nil) != (s.err == nil) || err == nil && !s.known
	switch {
	case err == nil:
		s.known, s.err = true, nil
	case s.err == nil || !s.known && err.Error() != s.err.Error():
		s.err, changed = err, true
	}
	return changed
}

// problem returns the problem of a source that cannot be read.
func (s *source) problem(in *Inputs) (p problem, ok bool) {
	if s.err == nil {
		return p, false
	}
	message := "cannot be read: " + s.err.Error()
	if errors.Is(s.err, hostfiles.ErrNoKubeconfig) {
		message = s.err.Error()
	}
	if s.advice != "" {
		message += "; " + s.advice
	}
	p = problem{Finding: failsafe.Finding{Source: s.name, Message: message, Failed: true, Stale: s.known}}
	if s.ports != nil {
		p.protocol, p.ports = s.protocol, s.ports(in)
		p.Port = p.ports[0]
	}
	return p, true
}
