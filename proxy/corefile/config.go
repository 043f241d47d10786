// Package corefile reads the agent's configuration file, written in the
// language of CoreDNS's Corefile, into one immutable value.
package corefile

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/policy/fqdn"
)

// Config is everything the administrator of the node can set. A Config that
// Load or Parse returned is valid and complete (defaults filled in) and is
// never changed afterwards; a reload makes a new one.
type Config struct {
	// File is where the configuration came from, as in error texts.
	File string
	// Zones are the forwards, the longest zone first; the last is the root.
	Zones []Zone
	// Bind are the endpoint's addresses, which serve pods.
	Bind []netip.Addr
	// Intercept are further resolvers whose port 53 is brought to the agent.
	Intercept []netip.Addr
	// ClusterDomain is the domain of Services and Pods.
	ClusterDomain fqdn.Name
	// ClusterRanges are the Pod and Service ranges, masked.
	ClusterRanges []netip.Prefix
	// Search are suffixes that clients append, beside the cluster's own.
	Search []fqdn.Name
	// Rebind are the exceptions from the guard against rebinding.
	Rebind []RebindAllow
	// NAT64 are the node's translation prefixes beside the well-known ones.
	NAT64 []netip.Prefix
	// Failsafe changes the table of destinations that the node reaches whatever its policies say.
	Failsafe failsafe.Config
	// FailClosed turns off the fallback to the resolver while no agent serves.
	FailClosed bool
	// Hold is how long a grant stays in the kernel after its deadline when no
	// agent lives to remove it.
	Hold time.Duration
	// Dataplane is how the rules of the Namespace tier are kept in the kernel.
	Dataplane Dataplane
	// Mark is the bit of connection marks that says "allowed", Candidate the bit by which
	// the iptables rules tell the nft rules what they allow: exactly one bit each.
	Mark, Candidate uint32
	// Accepted is the bit of packet marks by which rules of the node before translation say "accepted".
	Accepted uint32
	// Audit says where decisions and denied connections are logged, AuditFilter
	// which of them. A running agent takes over the filter alone.
	Audit       Audit
	AuditFilter audit.Filter
	// Limits bound what pods can make the agent hold.
	Limits Limits
	// ServerNames is about the connections of rules that require the server name.
	ServerNames ServerNames
	// CacheEntries and CacheBytes bound the answers that are kept, of all zones.
	CacheEntries int
	CacheBytes   int64
	// TTL bounds the TTLs in replies to pods.
	TTL TTL
	// Follow lets a pod that asked for an allowed name ask for the names that the
	// answer's SRV, MX, SVCB and HTTPS records point at, while the answer lasts.
	Follow bool
	// GrantTimeout is how long an answer waits for the kernel before the pod
	// gets SERVFAIL.
	GrantTimeout time.Duration
}

// Dataplane says how the rules of the Namespace tier are kept in the kernel.
type Dataplane string

// The dataplanes. Auto is IPTables where the node has all that it needs, else NFTables.
const (
	Auto     Dataplane = "auto"
	IPTables Dataplane = "iptables"
	NFTables Dataplane = "nftables"
)

// Zone is one `forward`: the names at or below Name go to the upstreams To and to the
// endpoints of Services. There is at least one of either.
type Zone struct {
	Name fqdn.Name
	// To are addresses, with port.
	To []netip.AddrPort
	// Services are followed. Before has for each the number of entries of To before it in
	// the file.
	Services []policy.ServiceRef
	Before   []int
	Policy   Policy
	// MaxFails is how many tries in a row must fail before an upstream is
	// asked last; 0 never does that.
	MaxFails int
	// Timeout bounds one try, Deadline the whole query.
	Timeout, Deadline time.Duration
	// Probe is how often an upstream that went silent is asked whether it answers.
	Probe time.Duration
	// MaxConcurrent bounds the queries under way at the zone's upstreams; 0 leaves
	// that to Limits.
	MaxConcurrent int
	// ForceTCP asks over TCP alone.
	ForceTCP bool
	// Cache is nil where answers are not kept.
	Cache *Cache
}

// Cache says how a zone's answers are kept. It is not changed.
type Cache struct {
	// MinTTL and MaxTTL bound how long an answer with records is kept, and so the
	// TTLs that it is handed on with.
	MinTTL, MaxTTL time.Duration
	// NegativeTTL bounds how long NXDOMAIN and an answer without records are kept
	// (RFC 2308); 0 keeps none.
	NegativeTTL time.Duration
	// Prefetch renews hot names before they end.
	Prefetch Prefetch
	// ServeStale is how long after its end an answer may still be given when no
	// upstream answers (RFC 8767); 0 never does.
	ServeStale time.Duration
}

// Prefetch selects the names that are renewed before they expire: names that were queried
// Amount times, with no gap of Within between, once less than Percent of their time is
// left. Amount 0 renews none.
type Prefetch struct {
	Amount  int
	Within  time.Duration
	Percent int
}

// TTL bounds the TTLs in replies to pods, in seconds.
type TTL struct{ Min, Max uint32 }

// Policy is the order in which the upstreams of a zone are tried.
type Policy string

// The orders, as CoreDNS names them.
const (
	Random     Policy = ""            // a random one first
	RoundRobin Policy = "round_robin" // each in turn first
	Sequential Policy = "sequential"  // as written
)

// RebindAllow lets names at or below Suffix have addresses in Range although
// the guard would block them.
type RebindAllow struct {
	Suffix fqdn.Name
	Range  netip.Prefix
}

// Audit says where the decision log goes.
type Audit struct {
	// Off: no log at all. Otherwise Path, or the standard output if empty.
	Off  bool
	Path string
	// Size is the bytes at which a file is rotated, Keep how many rotated
	// files stay.
	Size int64
	Keep int
}

// Limits are the bounds of the proxy. All are positive.
type Limits struct {
	Queries           int // in flight, of everyone
	QueriesPerPod     int // in flight, of one pod
	RatePerPod        int // queries a second, of one address of a pod
	BurstPerPod       int // queries at once beyond the rate, of one address of a pod
	Connections       int // TCP connections, of everyone
	ConnectionsPerPod int // TCP connections, of one pod
	Addresses         int // of one answer to a name that a policy allows
	Grants            int // of every pod
	GrantsPerPod      int
}

// ServerNames says where connections of rules with a server name are served, and bounds them.
type ServerNames struct {
	Port int // of the agent's own addresses
	RelayLimits
	// Grace is how long an agent serves open connections after the next one has taken the node, from its own end on.
	Grace time.Duration
}

// RelayLimits bound connections of rules with a server name, and those of them that wait for their ClientHello, of one pod
// and in all.
type RelayLimits struct {
	Connections, ConnectionsPerPod int
	Hellos, HellosPerPod           int
}

// DefaultRelayLimits are the bounds without configuration. With 16 KiB for a ClientHello they bound the memory of these to
// 16 MiB.
var DefaultRelayLimits = RelayLimits{Connections: 8192, ConnectionsPerPod: 1024, Hellos: 1024, HellosPerPod: 64}

// Default returns the configuration of an empty file but for the zones: the
// administrator has to name an upstream.
func Default() *Config {
	domain, err := fqdn.ParseName("cluster.local")
	if err != nil {
		panic(err) // a constant
	}
	return &Config{
		Bind:          []netip.Addr{netip.MustParseAddr("169.254.20.53"), netip.MustParseAddr("fd5c:7a1e:93b4::53")},
		ClusterDomain: domain,
		Hold:          10 * time.Minute,
		Dataplane:     Auto,
		Mark:          defaultMarks[0],
		Candidate:     defaultMarks[1],
		Accepted:      defaultMarks[2],
		Audit:         Audit{Size: 100 << 20, Keep: 5},
		AuditFilter:   audit.Filter{Sample: 1},
		Limits: Limits{
			Queries: 4096, QueriesPerPod: 512,
			RatePerPod: 1000, BurstPerPod: 256,
			Connections: 1024, ConnectionsPerPod: 64,
			Addresses: 128,
			Grants:    262144, GrantsPerPod: 8192,
		},
		ServerNames:  ServerNames{Port: 9955, RelayLimits: DefaultRelayLimits, Grace: 30 * time.Second},
		GrantTimeout: 500 * time.Millisecond,
		CacheEntries: 10_000,
		CacheBytes:   32 << 20,
		TTL:          TTL{0, 1<<31 - 1},
		Follow:       true,
	}
}

// Resolvers returns the resolvers whose port 53 is redirected to the agent: the addresses
// of the root zone with that port, then those of Intercept. The addresses of a Service
// are not among them, because they may change at any time.
func (c *Config) Resolvers() []netip.Addr {
	out := c.dialled()
	for _, a := range c.Intercept {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// dialled returns the addresses of the root zone whose port is 53: pods ask the
// cluster DNS there.
func (c *Config) dialled() (out []netip.Addr) {
	for _, z := range c.Zones {
		for _, to := range z.To {
			if z.Name == "" && to.Port() == 53 && !slices.Contains(out, to.Addr()) {
				out = append(out, to.Addr())
			}
		}
	}
	return out
}

// NeedsRestart returns the directives, sorted, in which the configuration differs from
// the one of the agent's start and that a running agent does not apply. Of forward these
// are the intercepted addresses; Services are followed while the agent runs.
func (c *Config) NeedsRestart(start *Config) []string {
	var names []string
	for _, d := range []struct {
		name string
		same bool
	}{
		{"audit", c.Audit == start.Audit},
		{"bind", slices.Equal(c.Bind, start.Bind)},
		{"dataplane", c.Dataplane == start.Dataplane},
		{"failclosed", c.FailClosed == start.FailClosed},
		{"forward", sameAddrs(c.dialled(), start.dialled())},
		{"hold", c.Hold == start.Hold},
		{"intercept", sameAddrs(c.Intercept, start.Intercept)},
		{"mark", c.Mark == start.Mark && c.Candidate == start.Candidate && c.Accepted == start.Accepted},
		{"servernames", c.ServerNames == start.ServerNames},
	} {
		if !d.same {
			names = append(names, d.name)
		}
	}
	return names
}

// sameAddrs compares without regard to the order.
func sameAddrs(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}
