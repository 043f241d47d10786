package scenarios

import (
	"net/netip"
	"strings"
)

// traces returns the first line of a program's print that shows something of ours.
func traces(out string) string {
	for line := range strings.Lines(out) {
		for _, word := range []string{"NAMEGATE", "namegate", "NG4-", "NG6-", "169.254.20.", "fd5c:7a1e:93b4", "mark=64"} {
			if strings.Contains(line, word) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// linkLocals returns the addresses of `ip -6 -o addr show scope link`.
func linkLocals(out string) []string {
	var addrs []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if f == "inet6" && i+1 < len(fields) {
				a, _, _ := strings.Cut(fields[i+1], "/")
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
