package suggest

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/fatal"
)

// logOf returns a log of lines in JSON, without the fields that each of them has.
func logOf(t *testing.T, lines ...string) *Log {
	t.Helper()
	l := NewLog()
	for _, text := range lines {
		line, err := audit.ParseLine([]byte(`{"v":1,"time":"2026-05-01T12:00:00Z","node":"node-1",` + strings.TrimPrefix(text, "{")))
		fatal.If(t, err, text)
		fatal.If(t, l.Add(line), text)
	}
	return l
}

// flowText returns a flow of a pod of shop to a destination, as logOf takes it.
func flowText(pod, verdict, protocol, to, reason, names string) string {
	address, port, _ := strings.Cut(to, " ")
	if port == "" {
		port = "0"
	}
	return `{"kind":"flow","verdict":"` + verdict + `","pod":` + pod + `,"protocol":"` + protocol +
		`","destination":{"address":"` + address + `","port":` + port + `},"reason":"` + reason + `","policies":["shop/watch"],"names":[` + names + `],"count":2}`
}

const (
	cart    = `{"namespace":"shop","name":"cart-1","workload":"app=cart","ip":"10.244.1.17"}`
	plainly = `{"namespace":"shop","name":"batch-1","ip":"10.244.1.18"}`
)

// named returns one name of a flow.
func named(name, rest string) string {
	return `{"name":"` + name + `","asked":"2026-05-01T11:59:00Z"` + rest + `}`
}

// asked returns a decision about a name that nothing matches.
func asked(pod, verdict, name, rest string) string {
	return `{"kind":"dns","verdict":"` + verdict + `","pod":` + pod + `,"protocol":"udp","question":{"name":"` + name + `","type":"A","class":"IN"}` + rest + `}`
}

const withAnswer = `,"answers":[{"address":"192.0.2.10","granted":false}],"rcode":"NOERROR"`
