package corefile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"

	"github.com/namegate/namegate/policy/fqdn"
)

// Load reads the configuration file. The error names every bad directive, a
// line each: "file:line: directive: reason, write … instead".
func Load(path string) (*Config, error) { return Read(path).Config() }

// Parse reads a configuration from text; file is for the errors and for where
// relative imports start. The error is as for Load.
func Parse(file, text string) (*Config, error) { return sourceOf(file, text).Config() }

func parse(file string, blocks []caddyfile.ServerBlock) (*Config, error) {
	p := parser{config: Default(), seen: map[string]stanza{}, zones: map[fqdn.Name]stanza{}}
	p.config.File = file
	for _, b := range blocks {
		p.block(file, b)
	}
	p.finish()
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return p.config, nil
}

// parser gathers one file's configuration and everything wrong with it.
type parser struct {
	config *Config
	seen   map[string]stanza    // the directives that may appear once
	zones  map[fqdn.Name]stanza // the forward that has the zone
	errs   []error
}

func (p *parser) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// block reads one server block: a zone or several, and its directives in the
// order of the file.
func (p *parser) block(file string, b caddyfile.ServerBlock) {
	var zones []fqdn.Name
	for _, key := range b.Keys {
		n, err := zoneKey(key)
		if err != nil {
			p.fail(fmt.Errorf("%s: zone %q: %w", file, key, err))
			return
		}
		zones = append(zones, n)
	}
	var all []stanza
	for _, tokens := range b.Tokens {
		ss, err := stanzas(file, tokens)
		p.fail(err)
		all = append(all, ss...)
	}
	slices.SortStableFunc(all, func(a, b stanza) int {
		if a.file != b.file {
			return strings.Compare(a.file, b.file)
		}
		return a.line - b.line
	})
	first := len(p.config.Zones)
	for _, s := range all {
		if s.name != "cache" {
			p.directive(zones, s)
		}
	}
	p.cache(zones, all, first)
}

// zoneKey reads a zone, with the port 53 that CoreDNS's files often spell.
func zoneKey(key string) (fqdn.Name, error) {
	if strings.Contains(key, "://") {
		return "", errors.New("only plain DNS is served, write the zone without a scheme")
	}
	if strings.Contains(key, "/") {
		return "", errors.New("a range is no zone, write its reverse zone such as 10.in-addr.arpa")
	}
	name, port, found := strings.Cut(key, ":")
	if found && port != "53" {
		return "", fmt.Errorf("the port is always 53, write %q instead", name)
	}
	if name == "" {
		return "", errors.New(`the zone is empty, write "." for the root`)
	}
	return zoneName(name)
}

func (p *parser) directive(zones []fqdn.Name, s stanza) {
	if s.name == "forward" {
		p.forward(zones, s)
		return
	}
	d, ok := directives[s.name]
	if !ok {
		p.fail(s.errorf("%s", unknown(s.name)))
		return
	}
	if !slices.Equal(zones, []fqdn.Name{""}) {
		p.fail(s.errorf(`is an option of the whole agent, write it in the block of zone "." instead`))
		return
	}
	if !d.block && len(s.block) > 0 {
		p.fail(s.errorf("has no block, write it on one line"))
		return
	}
	again := s.once(p.seen)
	if again != nil && d.once {
		p.fail(again)
		return
	}
	if again == nil && d.reset != nil {
		d.reset(p.config)
	}
	p.fail(d.read(p.config, s))
}

// finish checks what only the whole file shows.
func (p *parser) finish() {
	c := p.config
	if _, ok := p.zones[""]; !ok && len(p.errs) == 0 {
		p.fail(fmt.Errorf(`%s:1: forward: the root zone has none, write "forward . ADDRESS" or "forward . kube-dns.kube-system" in the block of zone "."`, c.File))
	}
	p.ownAddresses()
	slices.SortStableFunc(c.Zones, func(a, b Zone) int { return b.Name.NumLabels() - a.Name.NumLabels() })
	if l := c.Limits; l.QueriesPerPod > l.Queries || l.ConnectionsPerPod > l.Connections || l.GrantsPerPod > l.Grants {
		p.fail(p.seen["limits"].errorf("the bound of one pod is above the bound of all, write a lower one"))
	}
	if n := c.ServerNames; n.ConnectionsPerPod > n.Connections || n.HellosPerPod > n.Hellos {
		p.fail(p.seen["servernames"].errorf("the bound of one pod is above the bound of all, write a lower one"))
	}
}
