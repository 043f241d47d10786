package inject

import "errors"

// Interface puts packets into the node. All methods may be called from several
// goroutines.
type Interface interface {
	// Send makes an IP packet, IPv4 or IPv6, come in by an interface of this node,
	// the node's end of a pod's link, as if the pod whose source address it has had
	// sent it to its gateway. A bridge's port is one too. That Send returns does
	// not mean that the packet has been handled. Where this kernel cannot do it, the error
	// says which modules to load.
	Send(iface string, packet []byte) error
	// Close removes what Send needed of the node.
	Close() error
}

var errUnsupported = errors.New("this kernel cannot put packets into an interface; load the modules sch_ingress, cls_u32, act_mirred and veth " +
	"(of CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED, CONFIG_VETH), or build them in")
