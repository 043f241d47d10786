package suggest

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
)

// LeftKind is why connections cannot be allowed by a name.
type LeftKind string

// The kinds.
const (
	// LeftAddress: the pod never asked for a name of the address.
	LeftAddress LeftKind = "address"
	// LeftExpired: a policy allows a name of the address, and the connection came
	// after the end of its grant.
	LeftExpired LeftKind = "expired"
	// LeftBlocked: the guard against rebinding took the address out of the answer.
	LeftBlocked LeftKind = "blocked"
	// LeftCluster: a rule of a cluster policy of the Admin tier denies it.
	LeftCluster LeftKind = "cluster"
	// LeftEncrypted: a policy of the namespace denies encrypted DNS.
	LeftEncrypted LeftKind = "encrypted"
	// LeftServerName: a policy allows it with a TLS server name, and it had another one or none.
	LeftServerName LeftKind = "serverName"
	// LeftName: no policy can write the name.
	LeftName LeftKind = "name"
	// LeftProtocol: a policy has no word for the protocol but a rule without ports.
	LeftProtocol LeftKind = "protocol"
	// LeftBound: the policies that select the pod would hold too much. The one name says what.
	LeftBound LeftKind = "bound"
)

// LeftKinds returns every kind, in the order of the documents.
func LeftKinds() []LeftKind {
	return []LeftKind{LeftAddress, LeftExpired, LeftBlocked, LeftCluster, LeftEncrypted, LeftServerName, LeftProtocol, LeftName, LeftBound}
}

// Left is alike connections that no suggested policy allows.
type Left struct {
	Kind     LeftKind `json:"kind"`
	Protocol string   `json:"protocol,omitempty"`
	Address  string   `json:"address,omitempty"`
	Port     uint16   `json:"port,omitempty"`
	// Names are the names of the address, or other names concerned, sorted.
	Names []string `json:"names,omitempty"`
	// Count is how many connections there were.
	Count uint64 `json:"count,omitempty"`
}

type leftKey struct {
	kind              LeftKind
	protocol, address string
	port              uint16
}

// maxNames bounds the names of one Left or note: an address of a content network has
// had thousands.
const maxNames = 8

func (w *workload) leave(line audit.Line, kind LeftKind, names []string) {
	key := leftKey{kind, line.Protocol, line.Destination.Address, line.Destination.Port}
	at := w.left[key]
	if at == nil {
		at = &Left{Kind: kind, Protocol: key.protocol, Address: key.address, Port: key.port}
		w.left[key] = at
	}
	at.Count += max(line.Count, 1)
	for _, name := range names {
		if i, known := slices.BinarySearch(at.Names, name); !known {
			at.Names = slices.Insert(at.Names, i, name)
		}
	}
}

// leave adds what a cluster policy does not accept, and why.
func (p *Part) leave(format string, args ...any) {
	p.Left = append(p.Left, Left{Kind: LeftBound, Names: []string{fmt.Sprintf(format, args...)}})
}

// String describes the connection that is left out, the reason, and the alternative.
func (l Left) String() string {
	what, names := l.what(), console.Listed(l.Names, maxNames)
	switch l.Kind {
	case LeftAddress:
		if len(l.Names) == 0 {
			return what + " was dialled by address, and no name led there; write a NetworkPolicy with an ipBlock for it, or dial a name"
		}
		return what + " was dialled by address: other pods asked for it (" + names + "), these never did; dial the name, or write a NetworkPolicy with an ipBlock"
	case LeftExpired:
		return what + " (" + names + ") is allowed already, but was dialled after the answer's time; write a greater ttl.graceSeconds, or let the program ask again"
	case LeftBlocked:
		return what + " (" + names + ") is allowed already, but is an address that outside names may not lead to; " +
			"the administrator can write `rebind allow SUFFIX CIDR` in the Corefile"
	case LeftCluster:
		if len(l.Names) > 0 {
			what += " (" + names + ")"
		}
		return what + " is denied by a cluster policy (Admin), which no policy of the namespace changes; ask who administers the cluster's policies"
	case LeftEncrypted:
		return what + " is denied by dns.encrypted: Deny of a policy of the namespace; query the pod's resolver, or write Accept there"
	case LeftServerName:
		if names == "" {
			return what + " is allowed with a TLS server name, and had none that can be read; leave serverName: Require out of the rule if the protocol has none"
		}
		return what + " is allowed with another TLS server name than " + names + ", which the client named; allow that name if it is meant"
	case LeftName:
		return what + " has names that no policy can write (" + names + ")"
	case LeftProtocol:
		return what + " (" + names + ") needs a rule without ports, which opens every protocol and port; --every-protocol writes it"
	}
	return names
}

// what names the connections.
func (l Left) what() string {
	where := l.Address
	if l.Port > 0 {
		where = net.JoinHostPort(l.Address, strconv.Itoa(int(l.Port)))
	}
	return strings.TrimSpace(l.Protocol + " " + where)
}

func compareLeft(a, b Left) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Protocol, b.Protocol),
		cmp.Compare(a.Port, b.Port), slices.Compare(a.Names, b.Names))
}
