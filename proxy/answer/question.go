package answer

import (
	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// ReadQuestion reads the only question of a message. Not ok: there is none, or several,
// or its name is invalid.
func ReadQuestion(m *dns.Msg) (q wire.Question, ok bool) {
	if len(m.Question) != 1 {
		return q, false
	}
	n, err := fqdn.ParseName(m.Question[0].Name)
	if err != nil {
		return q, false
	}
	return wire.Question{Name: n, Type: m.Question[0].Qtype, Class: m.Question[0].Qclass}, true
}

// Presentation returns the name as the dns package spells it.
func Presentation(n fqdn.Name) string {
	if n == "" {
		return "."
	}
	return n.String() + "."
}
