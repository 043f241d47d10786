package convert_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// This is a second reading of the sources and of the results, for TestFieldOpens. It knows maps and
// lists alone, and none of the converter's types, patterns or ports.

// tree is a part of a document.
type tree struct{ v any }

func (t tree) at(keys ...string) tree {
	for _, key := range keys {
		m, _ := t.v.(map[string]any)
		t = tree{m[key]}
	}
	return t
}

func (t tree) each() (all []tree) {
	items, _ := t.v.([]any)
	for _, item := range items {
		all = append(all, tree{item})
	}
	return all
}

func (t tree) has() bool { return t.v != nil }

func (t tree) String() string {
	if t.v == nil {
		return ""
	}
	return fmt.Sprint(t.v)
}

func (t tree) texts() (all []string) {
	for _, item := range t.each() {
		all = append(all, item.String())
	}
	return all
}

// objects returns the objects of a file. What is no YAML is left out.
func objects(text string) (all []tree) {
	for part := range strings.SplitSeq("\n"+text, "\n---") {
		var v any
		if yaml.Unmarshal([]byte(strings.TrimSuffix(strings.TrimSpace(part), "\n...")), &v) != nil {
			continue
		}
		if o := (tree{v}); strings.HasSuffix(o.at("kind").String(), "List") {
			all = append(all, o.at("items").each()...)
		} else if o.has() {
			all = append(all, o)
		}
	}
	return all
}

// ports are a protocol, "" for each, and its ports from first to last.
type ports struct {
	protocol    string
	first, last int
}

// line is one rule: what becomes of which names and ports.
type line struct {
	action string // allow or deny; a Pass allows, because nothing follows it here
	names  []*regexp.Regexp
	inside bool // the names are those of Services too
	all    bool // it is for every destination
	ports  []ports
	any    bool // it is for every port
}

// list is rules in order, and what becomes of the rest.
type list struct {
	lines []line
	rest  bool
}

// allows is the verdict for a name. The name of a Service counts where inside is set.
func (l list) allows(name, protocol string, port int) bool {
	cluster := strings.HasSuffix(name, ".svc.cluster.local")
	for _, r := range l.lines {
		named := (!cluster || r.inside) && slices.ContainsFunc(r.names, func(n *regexp.Regexp) bool { return n.MatchString(name) })
		on := r.any || slices.ContainsFunc(r.ports, func(p ports) bool {
			return (p.protocol == "" || p.protocol == protocol) && p.first <= port && port <= p.last
		})
		if (named || r.all) && on {
			return r.action == "allow"
		}
	}
	return l.rest
}

// glob returns what a name with asterisks matches: label for an asterisk that is a whole label, part for another.
func glob(text, label, part string) *regexp.Regexp {
	text = strings.TrimSuffix(strings.ToLower(text), ".")
	if strings.Trim(text, "*") == "" {
		return regexp.MustCompile("^.*$")
	}
	var labels []string
	for l := range strings.SplitSeq(text, ".") {
		if strings.Trim(l, "*") == "" && l != "" {
			labels = append(labels, label)
			continue
		}
		l = regexp.MustCompile("[*]+").ReplaceAllString(regexp.QuoteMeta(strings.ReplaceAll(l, "*", "\x00")), "")
		labels = append(labels, regexp.MustCompile("\x00+").ReplaceAllString(l, part))
	}
	return regexp.MustCompile("^" + strings.Join(labels, "[.]") + "$")
}

const (
	oneLabel   = "[^.]+"
	manyLabels = "[^.]+([.][^.]+)*"
	partLabel  = "[^.]*"
)

func globs(texts []string, label, part string) (all []*regexp.Regexp) {
	for _, text := range texts {
		all = append(all, glob(text, label, part))
	}
	return all
}

// span returns ports of a protocol; without a number all of them, and none for a named port.
func span(protocol string, first, last tree) []ports {
	protocol = strings.ToUpper(protocol)
	if protocol == "ANY" || protocol == "ALL" {
		protocol = ""
	}
	if !first.has() || first.String() == "0" {
		return []ports{{protocol, 1, 65535}}
	}
	from, to, ranged := strings.Cut(first.String(), ":")
	if !ranged && last.has() {
		to = last.String()
	} else if !ranged {
		to = from
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil {
		return nil
	}
	return []ports{{protocol, a, b}}
}

// kubernetesPorts are ports as NetworkPolicies have them; missing is the protocol of one without.
func kubernetesPorts(r *line, from tree, missing string) {
	r.any = len(from.each()) == 0
	for _, p := range from.each() {
		protocol := p.at("protocol").String()
		if protocol == "" {
			protocol = missing
		}
		r.ports = append(r.ports, span(protocol, p.at("port"), p.at("endPort"))...)
	}
}

// everyAddress tells whether a network is every address.
func everyAddress(network string) bool { return network == "0.0.0.0/0" || network == "::/0" }

// action returns the verdict of an action.
func action(t tree) string {
	switch t.String() {
	case "Allow", "Accept", "Pass":
		return "allow"
	case "Deny", "Drop", "Reject":
		return "deny"
	}
	return ""
}

// sourceOpens reads an object of another system; false for what it does not know.
func sourceOpens(o tree) (list, bool) {
	spec := o.at("spec")
	group, _, _ := strings.Cut(o.at("apiVersion").String(), "/")
	switch group + " " + o.at("kind").String() {
	case "cilium.io CiliumNetworkPolicy", "cilium.io CiliumClusterwideNetworkPolicy":
		return ciliumOpens(append([]tree{spec}, o.at("specs").each()...)), true
	case "networking.gke.io FQDNNetworkPolicy":
		return gkeOpens(spec), true
	case "projectcalico.org NetworkPolicy", "projectcalico.org GlobalNetworkPolicy":
		return calicoOpens(spec), true
	case "crd.antrea.io NetworkPolicy", "crd.antrea.io ClusterNetworkPolicy":
		return antreaOpens(spec), true
	case "networking.k8s.aws ApplicationNetworkPolicy":
		return eksOpens(spec), true
	case "networking.k8s.aws ClusterNetworkPolicy":
		return eksClusterOpens(spec), true
	case "k8s.ovn.org EgressFirewall":
		return ovnOpens(spec), true
	case "networking.istio.io ServiceEntry":
		r := line{action: "allow", names: globs(spec.at("hosts").texts(), manyLabels, "\x00"), inside: true, any: len(spec.at("ports").each()) == 0}
		for _, p := range spec.at("ports").each() {
			protocol := "TCP"
			if strings.EqualFold(p.at("protocol").String(), "UDP") {
				protocol = "UDP"
			}
			r.ports = append(r.ports, span(protocol, p.at("number"), tree{})...)
		}
		return list{lines: []line{r}}, true
	}
	return list{}, false
}

func ciliumOpens(specs []tree) (l list) {
	for _, spec := range specs {
		if deny := spec.at("enableDefaultDeny", "egress"); deny.has() && deny.String() == "false" {
			l.rest = true
		}
		for _, e := range spec.at("egress").each() {
			r, peers := line{action: "allow", any: len(e.at("toPorts").each()) == 0}, 0
			for _, key := range []string{"toEndpoints", "toCIDR", "toCIDRSet", "toEntities", "toServices", "toGroups", "toNodes", "toFQDNs"} {
				if e.at(key).has() {
					peers++
				}
			}
			r.all = peers == 0 || slices.ContainsFunc(e.at("toEntities").texts(), func(s string) bool { return s == "world" || s == "all" }) || slices.ContainsFunc(e.at("toCIDR").texts(), everyAddress)
			for _, f := range e.at("toFQDNs").each() {
				if name := f.at("matchName"); name.has() && !strings.Contains(name.String(), "*") && !f.at("matchPattern").has() {
					r.names = append(r.names, glob(name.String(), oneLabel, partLabel))
				} else if !name.has() {
					r.names = append(r.names, glob(f.at("matchPattern").String(), oneLabel, partLabel))
				}
			}
			for _, to := range e.at("toPorts").each() {
				r.any = r.any || len(to.at("ports").each()) == 0
				for _, p := range to.at("ports").each() {
					r.ports = append(r.ports, span(p.at("protocol").String(), p.at("port"), p.at("endPort"))...)
				}
			}
			l.lines = append(l.lines, r)
		}
	}
	return l
}

func gkeOpens(spec tree) (l list) {
	for _, e := range spec.at("egress").each() {
		r, missing := line{action: "allow"}, ""
		for _, m := range e.at("matches").each() {
			if name := m.at("name").String(); name != "" && !strings.Contains(name, "*") {
				r.names = append(r.names, glob(name, oneLabel, partLabel))
			} else if name == "" {
				r.names = append(r.names, glob(m.at("pattern").String(), oneLabel, partLabel))
			}
		}
		for _, to := range e.at("to").each() {
			r.names, missing = append(r.names, globs(to.at("fqdns").texts(), oneLabel, partLabel)...), "TCP"
		}
		kubernetesPorts(&r, e.at("ports"), missing)
		l.lines = append(l.lines, r)
	}
	return l
}

func calicoOpens(spec tree) (l list) {
	for _, e := range spec.at("egress").each() {
		r, d := line{action: action(e.at("action")), names: globs(e.at("destination", "domains").texts(), manyLabels, "\x00")}, e.at("destination")
		if r.action == "" { // Log
			continue
		}
		limited := false
		for _, key := range []string{"nets", "domains", "selector", "namespaceSelector", "services", "notNets", "notSelector", "serviceAccounts"} {
			limited = limited || d.at(key).has()
		}
		r.all = !limited || slices.ContainsFunc(d.at("nets").texts(), everyAddress)
		protocol := map[string]string{"6": "TCP", "17": "UDP", "132": "SCTP"}[e.at("protocol").String()]
		if protocol == "" {
			protocol = e.at("protocol").String()
		}
		for _, p := range d.at("ports").each() {
			r.ports = append(r.ports, span(protocol, p, tree{})...)
		}
		if len(d.at("ports").each()) == 0 {
			r.ports = span(protocol, tree{}, tree{})
		}
		l.lines = append(l.lines, r)
	}
	return l
}

func antreaOpens(spec tree) list {
	l := list{rest: true}
	for _, e := range spec.at("egress").each() {
		r := line{action: action(e.at("action")), all: !e.at("to").has() && !e.at("toServices").has()}
		for _, peer := range e.at("to").each() {
			if peer.at("fqdn").has() {
				r.names = append(r.names, glob(peer.at("fqdn").String(), ".*", ".*"))
			}
			r.all = r.all || everyAddress(peer.at("ipBlock", "cidr").String())
		}
		kubernetesPorts(&r, e.at("ports"), "TCP")
		l.lines = append(l.lines, r)
	}
	return l
}

func eksOpens(spec tree) (l list) {
	for _, e := range spec.at("egress").each() {
		r := line{action: "allow", all: len(e.at("to").each()) == 0, inside: true}
		for _, peer := range e.at("to").each() {
			r.names = append(r.names, globs(peer.at("domainNames").texts(), manyLabels, "\x00")...)
		}
		kubernetesPorts(&r, e.at("ports"), "TCP")
		l.lines = append(l.lines, r)
	}
	return l
}

func eksClusterOpens(spec tree) list {
	l := list{rest: true}
	for _, e := range spec.at("egress").each() {
		r := line{action: action(e.at("action")), inside: true, any: len(e.at("ports").each()) == 0}
		for _, peer := range e.at("to").each() {
			r.names = append(r.names, globs(peer.at("domainNames").texts(), manyLabels, "\x00")...)
			r.all = r.all || slices.ContainsFunc(peer.at("networks").texts(), everyAddress)
		}
		for _, p := range e.at("ports").each() {
			if n := p.at("portNumber"); n.has() {
				r.ports = append(r.ports, span(n.at("protocol").String(), n.at("port"), tree{})...)
			} else if n := p.at("portRange"); n.has() {
				r.ports = append(r.ports, span(n.at("protocol").String(), n.at("start"), n.at("end"))...)
			}
		}
		l.lines = append(l.lines, r)
	}
	return l
}

func ovnOpens(spec tree) list {
	l := list{rest: true}
	for _, e := range spec.at("egress").each() {
		r := line{action: action(e.at("type")), inside: true, all: everyAddress(e.at("to", "cidrSelector").String())}
		if name := e.at("to", "dnsName"); name.has() {
			r.names = globs([]string{name.String()}, oneLabel, "\x00")
		}
		kubernetesPorts(&r, e.at("ports"), "TCP")
		l.lines = append(l.lines, r)
	}
	return l
}

// resultOpens reads converted policies of one source: those of a namespace add up, those of the cluster
// are in the order of tier, priority and name.
func resultOpens(policies []tree) list {
	l := list{rest: true}
	rank := func(p tree) string {
		priority, _ := strconv.Atoi(p.at("spec", "priority").String())
		return fmt.Sprintf("%s %05d %s", p.at("spec", "tier"), priority, p.at("metadata", "name")) // Admin, Baseline
	}
	slices.SortStableFunc(policies, func(a, b tree) int { return strings.Compare(rank(a), rank(b)) })
	for _, p := range policies {
		for _, e := range p.at("spec", "egress").each() {
			r := line{action: "allow", inside: true}
			if p.at("kind").String() == "ClusterFQDNNetworkPolicy" {
				r.action = action(e.at("action"))
				r.all = !e.at("matches").has() && !e.at("networks").has() || slices.ContainsFunc(e.at("networks").texts(), everyAddress)
			}
			for _, m := range e.at("matches").each() {
				text, deep := strings.CutPrefix(m.at("name").String()+m.at("pattern").String(), "**.")
				if deep {
					r.names = append(r.names, regexp.MustCompile(strings.Replace(glob(text, oneLabel, partLabel).String(), "^", "^([^.]+[.])+", 1)))
				} else {
					r.names = append(r.names, glob(text, oneLabel, partLabel))
				}
			}
			kubernetesPorts(&r, e.at("ports"), "")
			l.lines = append(l.lines, r)
		}
		if p.at("kind").String() == "FQDNNetworkPolicy" {
			l.rest = false
		}
	}
	return l
}
