package check

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Question is whether a pod may open a connection.
type Question struct {
	Name     fqdn.Name
	Protocol policy.Protocol // AnyProtocol: on any protocol and port
	Port     uint16          // 0: on any port of the protocol
}

// errWord says how questions are written.
var errWord = errors.New("write NAME, NAME:PORT or NAME:PORT/PROTOCOL, such as www.example.org:443 or ns.example.org:53/udp")

// ParseQuestion reads NAME[:PORT][/PROTOCOL]; the protocol is tcp, udp, sctp or icmp,
// and tcp where a port is written alone. An address is no question for a name, and the
// error says what is.
func ParseQuestion(text string) (Question, error) {
	if isAddress(text) {
		return Question{}, fmt.Errorf("%q is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name", text)
	}
	rest, protocol, hasProtocol := strings.Cut(text, "/")
	name, port, hasPort := strings.Cut(rest, ":")
	var q Question
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Question{}, fmt.Errorf("%q: %q is no port; %w", text, port, errWord)
		}
		q.Protocol, q.Port = policy.TCP, uint16(n)
	}
	if hasProtocol {
		p, known := protocols[strings.ToLower(protocol)]
		if !known || p == icmp && hasPort {
			return Question{}, fmt.Errorf("%q: %q is no protocol of a port; %w", text, protocol, errWord)
		}
		q.Protocol = p
	}
	pattern, err := fqdn.ParseExact(name)
	if err != nil {
		return Question{}, fmt.Errorf("%q: %w", text, err)
	}
	q.Name, _ = pattern.Exact()
	return q, nil
}

// icmp stands for every protocol that a policy has no word for. Source:
// https://www.iana.org/assignments/protocol-numbers.
const icmp policy.Protocol = 1

var protocols = map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP, "icmp": icmp}

// isAddress tells whether an address, with or without a port, stands where a name does.
func isAddress(text string) bool {
	text, _, _ = strings.Cut(text, "/")
	_, alone := netip.ParseAddr(strings.Trim(text, "[]"))
	_, withPort := netip.ParseAddrPort(text)
	return alone == nil || withPort == nil
}

// String returns the question as ParseQuestion reads it.
func (q Question) String() string {
	text := q.Name.String()
	if q.Port > 0 {
		text += ":" + strconv.Itoa(int(q.Port))
	}
	switch {
	case q.Protocol == icmp:
		text += "/icmp"
	case q.Protocol != policy.AnyProtocol:
		text += "/" + q.Protocol.String()
	}
	return text
}

// flow is the question as evaluation sees it, to an address that is not known.
func (q Question) flow() policy.Flow {
	at := netip.AddrPortFrom(netip.Addr{}, q.Port)
	return policy.Flow{Protocol: q.Protocol, Dialled: at, Reached: at}
}
