package servername

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
)

const (
	// maxPorts bounds the local ports that the relay uses, and so its connections to one destination. The node's own
	// programs have the others.
	maxPorts = 16384
	// portTries is how many ports are tried for one connection: some are in use by other programs.
	portTries = 64
)

// ports are the local ports that the relay connects from, each in its turn, so that each rests as long as possible.
type ports struct {
	all  []uint16
	next atomic.Uint32
	mark int // of sockets, 0 for none
}

// localPorts returns up to three fifths of the ports that the kernel may choose from, in random order.
func localPorts() *ports {
	return portsOf(sysctl("ip_local_port_range"), sysctl("ip_local_reserved_ports"))
}

func sysctl(name string) string {
	b, _ := os.ReadFile("/proc/sys/net/ipv4/" + name)
	return string(b)
}

func portsOf(within, reserved string) *ports {
	low, high := 32768, 60999 // the kernel's default
	_, _ = fmt.Sscan(within, &low, &high)
	skip := map[int]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(reserved), ",") {
		var first, last int
		if n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n < 2 {
			last = first
		}
		for ; first <= last; first++ {
			skip[first] = true
		}
	}
	p := &ports{}
	for port := low; port <= high; port++ {
		if !skip[port] {
			p.all = append(p.all, uint16(port))
		}
	}
	rand.Shuffle(len(p.all), func(i, j int) { p.all[i], p.all[j] = p.all[j], p.all[i] })
	p.all = p.all[:min(maxPorts, len(p.all)*3/5)]
	return p
}

func (p *ports) pick() uint16 {
	if len(p.all) == 0 {
		return 0 // the kernel chooses
	}
	return p.all[int(p.next.Add(1))%len(p.all)]
}
