package explain

import (
	"strings"
	"testing"
)

// TestPortsOfEveryProtocol: explain names the protocols of a port without one, and asks for
// each of them.
func TestPortsOfEveryProtocol(t *testing.T) {
	bare := strings.Replace(base, "{protocol: TCP, port: 443}", "{port: 443}", 1)
	const ports = "on tcp/443,udp/443,sctp/443"
	for to, want := range map[string]Verdict{
		"www.example.org:443": OnceAsked, "www.example.org:443/udp": OnceAsked, "www.example.org:443/sctp": OnceAsked,
		"www.example.org:80/udp": Denied,
	} {
		e := Explain(Question{To: target(t, to)}, about(t, cart(), manifests(t, bare)))
		if e.Verdict != want || len(e.Matches) != 1 || "on "+e.Matches[0].Ports != ports || !strings.Contains(e.Reason, ports) {
			t.Errorf("%s: %s: %s, %+v", to, e.Verdict, e.Reason, e.Matches)
		}
		e = Explain(Question{To: target(t, to)}, about(t, cart(), manifests(t, base)))
		if udp := !strings.HasSuffix(to, ":443"); (e.Verdict == Denied) != udp || strings.Contains(e.Reason, ports) {
			t.Errorf("with a protocol, %s: %s: %s", to, e.Verdict, e.Reason)
		}
	}
}
