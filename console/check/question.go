package check

import (
	"fmt"
	"net/netip"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Question is whether a pod may open a connection.
type Question struct {
	Name     fqdn.Name
	Protocol policy.Protocol // AnyProtocol: on any protocol and port
	Port     uint16          // 0: on any port of the protocol
}

// ParseQuestion reads NAME[:PORT][/PROTOCOL], as explain reads it. An address is no question for
// a name, and the error says what is.
func ParseQuestion(text string) (Question, error) {
	to, err := explain.ParseTarget(text)
	if err == nil && to.Addr.IsValid() {
		err = fmt.Errorf("%q is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name", text)
	}
	return Question{to.Name, to.Protocol, to.Port}, err
}

// icmp stands for every protocol that a policy has no word for. Source:
// https://www.iana.org/assignments/protocol-numbers.
const icmp policy.Protocol = 1

// String returns the question as ParseQuestion reads it.
func (q Question) String() string {
	return explain.Target{Name: q.Name, Protocol: q.Protocol, Port: q.Port}.String()
}

// flow is the question as evaluation sees it, to an address that is not known.
func (q Question) flow() policy.Flow {
	at := netip.AddrPortFrom(netip.Addr{}, q.Port)
	return policy.Flow{Protocol: q.Protocol, Dialled: at, Reached: at}
}
