package convert_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/convert"
	"github.com/namegate/namegate/testkit/fatal"
)

// hostLine is a rule of a second reading of policies for nodes: of addresses alone, because the
// nodes and pods of a cluster are not known here.
type hostLine struct {
	line
	nets, not []netip.Prefix
}

// hostList is rules in order, and what becomes of the rest.
type hostList struct {
	lines []hostLine
	rest  bool
}

func within(nets []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(a) })
}

func (l hostList) allows(a netip.Addr, protocol string, port int) bool {
	for _, r := range l.lines {
		on := r.any || slices.ContainsFunc(r.ports, func(p ports) bool {
			return (p.protocol == "" || p.protocol == protocol) && p.first <= port && port <= p.last
		})
		if on && (r.all || within(r.nets, a)) && !within(r.not, a) {
			return r.action == "allow"
		}
	}
	return l.rest
}

// prefixes reads networks and addresses.
func prefixes(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		} else if n, err := netip.ParsePrefix(text); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// hostOpens reads a policy for nodes of another system for a kind of traffic and a direction; false if it is not
// about that traffic.
func hostOpens(o tree, traffic, direction string) (l hostList, ok bool) {
	spec, far := o.at("spec"), "source"
	if o.at("kind").String() == "ClusterNetworkPolicy" {
		return antreaHostOpens(spec, direction), traffic == "Local"
	}
	if direction == "egress" {
		far = "destination"
	}
	set := func(field string) bool { return spec.at(field).String() == "true" }
	switch traffic {
	case "BeforeNAT":
		ok = set("preDNAT")
	case "Untracked":
		ok = set("doNotTrack")
	case "Forwarded":
		ok = set("applyOnForward") && !set("preDNAT") && !set("doNotTrack")
	default:
		ok = !set("preDNAT") && !set("doNotTrack")
	}
	typed := slices.Contains(spec.at("types").texts(), strings.ToUpper(direction[:1])+direction[1:])
	if !spec.at("types").has() {
		typed = spec.at(direction).has()
	}
	l.rest = !typed || traffic == "BeforeNAT" || traffic == "Untracked"
	for _, e := range spec.at(direction).each() {
		r, limited := hostLine{line: line{action: action(e.at("action"))}}, false
		if r.action == "" || !typed {
			continue
		}
		for _, field := range []string{"nets", "selector", "namespaceSelector", "domains"} {
			limited = limited || e.at(far, field).has()
		}
		r.all, r.nets, r.not = !limited, prefixes(e.at(far, "nets").texts()), prefixes(e.at(far, "notNets").texts())
		for _, p := range e.at("destination", "ports").each() {
			r.ports = append(r.ports, span(e.at("protocol").String(), p, tree{})...)
		}
		if len(r.ports) == 0 {
			r.ports = span(e.at("protocol").String(), tree{}, tree{})
		}
		l.lines = append(l.lines, r)
	}
	return l, ok
}

func antreaHostOpens(spec tree, direction string) hostList {
	l := hostList{rest: true}
	for _, e := range spec.at(direction).each() {
		if e.at("protocols").has() { // of ICMP
			continue
		}
		peers := append(e.at("from").each(), e.at("to").each()...)
		r := hostLine{line: line{action: action(e.at("action")), all: len(peers) == 0}}
		for _, peer := range peers {
			r.nets = append(r.nets, prefixes([]string{peer.at("ipBlock", "cidr").String()})...)
			r.not = append(r.not, prefixes(peer.at("ipBlock", "except").texts())...)
		}
		kubernetesPorts(&r.line, e.at("ports"), "TCP")
		l.lines = append(l.lines, r)
	}
	return l
}

// nodesOpen reads converted policies for nodes that have a name, or one that begins with it.
func nodesOpen(policies []tree, traffic, direction string) hostList {
	l := hostList{rest: true}
	rank := func(p tree) string {
		priority, _ := strconv.Atoi(p.at("spec", "priority").String())
		return fmt.Sprintf("%05d %s", priority, p.at("metadata", "name"))
	}
	slices.SortStableFunc(policies, func(a, b tree) int { return strings.Compare(rank(a), rank(b)) })
	for _, p := range policies {
		if p.at("kind").String() != "NodeNetworkPolicy" || p.at("spec", "traffic").String() != traffic {
			continue
		}
		for _, e := range p.at("spec", direction).each() {
			r := hostLine{line: line{action: action(e.at("action"))}, nets: prefixes(e.at("networks").texts())}
			r.all = !e.at("networks").has() && !e.at("nodes").has() && !e.at("pods").has() && !e.at("matches").has()
			kubernetesPorts(&r.line, e.at("ports"), "")
			l.lines = append(l.lines, r)
		}
	}
	return l
}

// network is a text that may be a network or an address.
var network = regexp.MustCompile(`[0-9a-f]+([.:]+[0-9a-f]+)+[0-9a-f:]*(/[0-9]+)?`)

// TestNodesOpen: by another reading of the sources and of the results, policies for nodes open and deny the same
// addresses and ports of each kind of traffic in each direction, unless a note says wider or narrower.
func TestNodesOpen(t *testing.T) {
	compared, open, denied, wider, narrower := map[string]int{}, 0, 0, 0, 0
	for _, file := range fieldFiles(t) {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		for _, o := range objects(string(text)) {
			asJSON, err := json.Marshal(o.v)
			fatal.If(t, err)
			var r convert.Result
			fatal.If(t, r.Add("o.json", asJSON))
			r.Convert()
			if !strings.Contains(string(r.YAML), "kind: NodeNetworkPolicy") || o.at("kind").String() == "HostEndpoint" {
				continue
			}
			graded := map[convert.Grade]bool{}
			for _, n := range r.Notes {
				general := strings.Contains(n.Message, "HostEndpoints")
				graded[n.Grade] = graded[n.Grade] || !general
			}
			result, addrs := objects(string(r.YAML)), []netip.Addr{netip.MustParseAddr("203.0.113.250"), netip.MustParseAddr("2001:db8:ffff::1")}
			for _, n := range prefixes(network.FindAllString(string(asJSON), -1)) {
				addrs = append(addrs, n.Addr(), n.Addr().Next(), n.Masked().Addr().Prev())
			}
			for _, traffic := range []string{"Local", "Forwarded", "BeforeNAT", "Untracked"} {
				for _, direction := range []string{"ingress", "egress"} {
					source, ok := hostOpens(o, traffic, direction)
					got := nodesOpen(result, traffic, direction)
					if !ok {
						if len(got.lines) > 0 {
							t.Errorf("%s: %s is not about traffic %s, and its policies are", file, o.at("metadata", "name"), traffic)
						}
						continue
					}
					compared[traffic]++
					var lists []list
					for _, l := range append(slices.Clone(source.lines), got.lines...) {
						lists = append(lists, list{lines: []line{l.line}})
					}
					for _, a := range addrs {
						for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
							for _, port := range numbers(lists...) {
								was, is := source.allows(a, protocol, port), got.allows(a, protocol, port)
								what := fmt.Sprintf("%s: %s, %s %s of %v %s %d: %v", file, o.at("metadata", "name"), traffic, direction, a, protocol, port, r.Notes)
								switch {
								case is && was:
									open++
								case is:
									if wider++; !graded[convert.Wider] {
										t.Errorf("is open, was denied, and no note is wider: %s", what)
									}
								case was:
									if narrower++; !graded[convert.Narrower] && !graded[convert.Failed] {
										t.Errorf("is denied, was open, and no note is narrower: %s", what)
									}
								default:
									denied++
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%v; %d open and %d denied in both, %d open in the result alone, %d in the source alone", compared, open, denied, wider, narrower)
	if len(compared) != 4 || open < 1000 || denied < 500 || wider == 0 || narrower == 0 {
		t.Error("too little is compared")
	}
}

// TestNotesAreNoLoss: what is to be known about policies for nodes, their failsafes and safeguards, is said once, and does
// not make the result uncertain.
func TestNotesAreNoLoss(t *testing.T) {
	text, err := os.ReadFile("testdata/field/antrea-nodes.yaml")
	fatal.If(t, err)
	var r convert.Result
	fatal.If(t, r.Add("o.yaml", text))
	r.Convert()
	said := map[string]int{}
	for _, n := range r.Notes {
		for _, word := range []string{"failsafes", "spec.safeguard"} {
			if strings.Contains(n.Message, word) {
				said[string(n.Grade)+" "+word]++
			}
		}
	}
	if !r.Certain() || len(said) != 2 || said["note failsafes"] != 1 || said["note spec.safeguard"] != 1 {
		t.Errorf("certain %t, %v: %v", r.Certain(), said, r.Notes)
	}
}
