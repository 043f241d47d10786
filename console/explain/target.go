package explain

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// The protocols of messages that pods send and that no rule names, of
// https://www.iana.org/assignments/protocol-numbers.
const (
	icmp  policy.Protocol = 1
	icmp6 policy.Protocol = 58
)

// Target is where a pod wants to connect.
type Target struct {
	Name fqdn.Name // where Addr is not valid
	Addr netip.Addr
	// Protocol is policy.AnyProtocol where none is given.
	Protocol policy.Protocol
	Port     uint16 // 0: every port
}

// ParseTarget reads NAME or IP, then :PORT and /PROTOCOL if they are to count. A
// port is one of TCP unless the protocol says otherwise. An IPv6 address with a
// port stands in brackets. The error says what to write instead.
func ParseTarget(s string) (Target, error) {
	var t Target
	if strings.Contains(s, "://") {
		return t, fmt.Errorf("%q is a URL; write its host alone, as in www.example.org:443", s)
	}
	host, protocol, named := strings.Cut(s, "/")
	host, port, err := splitPort(host)
	if err != nil {
		return t, fmt.Errorf("%q: %w", s, err)
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return t, fmt.Errorf("%q: %q is no port; write 1 to 65535", s, port)
		}
		t.Port, t.Protocol = uint16(n), policy.TCP
	}
	if a, err := netip.ParseAddr(host); err == nil {
		t.Addr = a.Unmap().WithZone("")
	} else if t.Name, err = parseName(host); err != nil {
		return t, err
	}
	if named {
		if t.Protocol, err = t.protocol(protocol); err != nil {
			return t, fmt.Errorf("%q: %w", s, err)
		}
	}
	return t, nil
}

// parseName reads the one name that is asked for.
func parseName(host string) (fqdn.Name, error) {
	if strings.Trim(host, "0123456789.") == "" && host != "" {
		return "", fmt.Errorf("%q is no address, and no name that DNS is queried for; write an address such as 192.0.2.10, or a name", host)
	}
	p, err := fqdn.ParseExact(host)
	if err != nil && strings.Contains(host, "*") {
		return "", fmt.Errorf("%q is a pattern; write one name that it is to cover", host)
	}
	n, _ := p.Exact()
	return n, err
}

// splitPort takes the port off, "" for none.
func splitPort(s string) (host, port string, err error) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, after, ok := strings.Cut(rest, "]")
		port, hasPort := strings.CutPrefix(after, ":")
		if !ok || after != "" && (!hasPort || port == "") {
			return "", "", fmt.Errorf("the brackets are not understood; write [2001:db8::1]:443")
		}
		return host, port, nil
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 || strings.Count(s, ":") > 1 { // IPv6 without a port
		return s, "", nil
	}
	if s[at+1:] == "" {
		return "", "", fmt.Errorf("no port stands behind the colon; write one, or leave the colon out")
	}
	return s[:at], s[at+1:], nil
}

// protocols are the protocols by their words.
var protocols = map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP, "icmp": icmp, "icmpv6": icmp, "ipv6-icmp": icmp}

// protocol returns the protocol of a word, for this address.
func (t *Target) protocol(word string) (policy.Protocol, error) {
	p, known := protocols[strings.ToLower(word)]
	switch {
	case !known:
		return p, fmt.Errorf("protocol %q is not known; write tcp, udp, sctp or icmp", word)
	case p == icmp && t.Port != 0:
		return p, fmt.Errorf("ICMP has no ports; leave :%d out", t.Port)
	case p == icmp && t.Addr.Is6():
		return icmp6, nil
	}
	return p, nil
}

// At returns the target with an address in place of its own.
func (t Target) At(a netip.Addr) Target {
	if t.Addr = a; t.Protocol == icmp && a.Is6() {
		t.Protocol = icmp6
	}
	return t
}

// String returns the target as ParseTarget reads it.
func (t Target) String() string {
	s := t.host()
	if t.Port != 0 {
		if t.Addr.Is6() {
			s = "[" + s + "]"
		}
		s += ":" + strconv.Itoa(int(t.Port))
	}
	if t.Protocol != policy.AnyProtocol {
		s += "/" + protocolWord(t.Protocol)
	}
	return s
}

func (t Target) host() string {
	if t.Addr.IsValid() {
		return t.Addr.String()
	}
	return t.Name.String()
}

// portless tells whether the protocol has no ports.
func (t Target) portless() bool { return t.Protocol == icmp || t.Protocol == icmp6 }

// onPort says on what is asked for, "" where that is anything.
func (t Target) onPort() string {
	switch {
	case t.Port != 0:
		return fmt.Sprintf(" on %s/%d", t.Protocol, t.Port)
	case t.Protocol != policy.AnyProtocol:
		return " by " + protocolWord(t.Protocol)
	}
	return ""
}

func protocolWord(p policy.Protocol) string {
	if p == icmp || p == icmp6 {
		return "icmp"
	}
	return p.String()
}
