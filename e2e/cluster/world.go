package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Zone has the records of all scenarios beyond the names that spell their address (see the
// program world). SetZone adds to them.
const Zone = `
example.org.       60 A     198.51.100.10
example.org.       60 AAAA  2001:db8::10
www.example.org.   60 A     198.51.100.11
www.example.org.   60 AAAA  2001:db8::11
alias.example.org. 60 CNAME www.example.org.
*.wild.test.       60 A     198.51.100.20
other.test.        60 A     203.0.113.30
other.test.        60 AAAA  2001:db8::30
two.test.          60 A     203.0.113.41
two.test.          60 A     203.0.113.42
twin.test.         60 A     203.0.113.30
twin.test.         60 AAAA  2001:db8::30
bank.test.         60 A     198.51.100.50
bank.test.         60 AAAA  2001:db8::50
registry.test.     60 A     203.0.113.60
registry.test.     60 AAAA  2001:db8::60
elsewhere.test.    60 A     203.0.113.61
registry.example.org.       60 A 203.0.113.70
blobs.registry.example.org. 60 A 203.0.113.71
updates.example.org.        60 A 203.0.113.72
other.example.org.          60 A 203.0.113.73
www.kernel.org.             60 A 203.0.113.80
api.example.org.            60 A 203.0.113.81
status.example.org.         60 A 203.0.113.82
pypi.example.org.           60 A 203.0.113.83
github.example.org.         60 A 203.0.113.84
`

// WorldPorts are the ports on which the world's echo servers answer.
var WorldPorts = []string{"80", "81", "443", "8080", "8443"}

// RegistryPort is the port of the world's registry of images, which has one image under every
// name and speaks HTTP.
const RegistryPort = 5000

func (c *Cluster) zoneFile() string { return filepath.Join(hostDir(worldSite.name), "zone") }
func (c *Cluster) queryLog() string { return filepath.Join(logDir, "world-queries.log") }

func (c *Cluster) startWorld() error {
	// Servers bind addresses that are local by route alone.
	if err := c.world.Sysctl("net.ipv6.ip_nonlocal_bind=1"); err != nil {
		return err
	}
	if err := c.SetZone(""); err != nil {
		return err
	}
	return c.world.begin("world", c.tool("world"), append([]string{c.zoneFile(), c.queryLog()}, WorldPorts...)...)
}

// SetZone has the world's DNS answer with Zone and records, which are written as in a zone
// file, with whole names. Resolvers may still have records of before in their caches.
func (c *Cluster) SetZone(records string) error {
	next := c.zoneFile() + ".new"
	if err := os.WriteFile(next, []byte(Zone+records), 0o644); err != nil {
		return fmt.Errorf("write the world's zone: %w", err)
	}
	return os.Rename(next, c.zoneFile())
}

// Asked returns the questions that reached the world's DNS, oldest first, each
// as "NAME TYPE CLIENT".
func (c *Cluster) Asked() ([]string, error) {
	text, err := os.ReadFile(c.queryLog())
	if err != nil {
		return nil, fmt.Errorf("read what the world was asked: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

// DialWorld connects from an address of the world over TCP.
func (c *Cluster) DialWorld(ctx context.Context, from, to netip.AddrPort) (conn net.Conn, err error) {
	err = c.world.Do(func() (err error) {
		conn, err = (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}).DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}
