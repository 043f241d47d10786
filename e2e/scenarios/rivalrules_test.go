package scenarios

import (
	"regexp"
	"slices"
	"strings"
)

// rivalRules is what a random rival finds on a node of one dataplane.
type rivalRules struct {
	name, dataplane string
	flags           []string // of the agent
	// nftAlone: flush ruleset removes both nets at once.
	nftAlone bool
	// listing is a shell command that prints our objects.
	listing string
	// commands are shell commands that change our objects.
	commands func(w *randomRival, pick func(...string) string) []string
}

func (rules rivalRules) command(w *randomRival) string {
	pick := func(from ...string) string { return from[w.r.IntN(len(from))] }
	return pick(rules.commands(w, pick)...)
}

const listTables = "for f in inet bridge; do nft -s list table $f namegate; done\n"

// iptablesRules are those of a variant of iptables.
func iptablesRules(variant string) rivalRules {
	return rivalRules{
		name: variant, dataplane: "iptables", flags: []string{"--iptables", variant}, nftAlone: variant == "nft",
		listing: listTables +
			"for p in iptables ip6tables; do for t in raw mangle security; do echo \"*$p $t\"; $p-" + variant + "-save -t $t | grep -e '-[Aj] NAMEGATE' -e ^:NAMEGATE; done; done\n" +
			"ipset save | grep NG",
		commands: func(w *randomRival, pick func(...string) string) []string {
			table, program := pick("raw", "mangle", "security"), pick("iptables", "ip6tables")+"-"+variant
			return append(tableRivals(pick),
				program+" -t "+table+" -F",
				"for p in iptables ip6tables; do $p-"+variant+" -t "+table+" -F; $p-"+variant+" -t "+table+" -X; done; true",
				program+"-save -t "+table+" | grep -v NAMEGATE | "+program+"-restore -T "+table,
				"ipset flush",
				"ipset flush $(ipset list -n | shuf -n 1)",
				"for s in $(ipset list -n | shuf -n 3); do ipset destroy $s; done; true",
				"for t in raw mangle security; do for p in iptables ip6tables; do $p-"+variant+" -t $t -F; $p-"+variant+" -t $t -X; done; done; ipset destroy; true",
				"set -- $(ipset list -n | grep ^NG4 | shuf); while [ $# -gt 1 ]; do ipset swap $1 $2; shift; done; true",
				"ipset add NG4-selected 10.1.0.77; ipset del NG4-selected "+w.Pod("a").Addr4.String())
		},
	}
}

// tableRivals change the tables that both dataplanes have.
func tableRivals(pick func(...string) string) []string {
	chain := pick("judge", "forward", "input", "prerouting", "giveback", "home", "refuse", "dial", "dnstcp", "dnssyn", "cut", "errors")
	set := pick("set inet namegate selected4", "set inet namegate home4", "set inet namegate known4", "set inet namegate intercepted4",
		"set inet namegate alive", "set inet namegate own6", "map inet namegate intercept4", "map inet namegate giveback4", "map inet namegate backends4",
		"set bridge namegate home4", "set bridge namegate ports")
	return []string{
		"nft flush ruleset",
		"nft delete table inet namegate",
		"nft delete table bridge namegate",
		"nft flush table inet namegate",
		"nft flush chain inet namegate " + chain,
		"nft insert rule inet namegate " + chain + " return",
		"nft flush " + set,
		"nft add element inet namegate selected4 '{ 10.1.0.77 }'",
	}
}

// nftablesRules are those of the dataplane nftables.
var nftablesRules = rivalRules{
	name: "nftables", dataplane: "nftables", nftAlone: true,
	listing: listTables + "nft -s list table inet namegate-net",
	commands: func(w *randomRival, pick func(...string) string) []string {
		chain := pick("forward", "input", "unadmitted", "foreign")
		grants := "$(nft list sets inet | grep -o 'grants-[^ ]*-" + pick("4", "6") + "' | shuf -n 1)"
		selected := "inet namegate-net selected4 '{ " + w.Pod("a").Addr4.String() + " }'"
		return append(tableRivals(pick),
			"nft delete table inet namegate-net",
			"nft flush table inet namegate-net",
			"nft flush chain inet namegate-net "+chain,
			"nft insert rule inet namegate-net "+chain+" return",
			"nft flush set inet namegate-net "+pick("selected4", "selected6", "ifaces"),
			"nft delete element "+selected,
			"nft add element inet namegate-net selected4 '{ 10.1.0.77 }'",
			"nft flush chain inet namegate "+pick("namespace", "admit", "undeniable", "resolve"),
			"nft flush map inet namegate "+pick("pods4", "pods6"),
			"nft delete element inet namegate pods4 '{ "+w.Pod("a").Addr4.String()+" }'",
			"nft flush set inet namegate "+grants,
			"for s in $(nft list sets inet | grep -o 'grants-[^ ]*'); do nft flush set inet namegate $s; done",
			"for s in $(nft list sets inet | grep -o 'grants-[^ ]*-4'); do nft delete element inet namegate $s '{ 198.51.100.1 . tcp . 80 }' 2>/dev/null; done; true",
			"for s in $(nft list sets inet | grep -o 'grants-[^ ]*-4'); do nft add element inet namegate $s '{ 198.51.100.77 . tcp . 80 timeout 60s, 198.51.100.1 . udp . 9 timeout 60s }'; done")
	},
}

// missing is what nft and ipset say of an object that is not there.
var missing = regexp.MustCompile("No such file|The set with the given name does not exist")

var (
	// servingAddr is an address that an agent serves on: each agent has its own.
	servingAddr = regexp.MustCompile(`169\.254\.20\.(6[4-9]|[789]\d|\d\d\d)\b|fd5c:7a1e:93b4::1:[0-9a-f]+`)
	passing     = regexp.MustCompile(`^(set|map) (alive|probed|bypassing|told|watched|dns(flows|share|refused))`)
	anonymous   = regexp.MustCompile(`\{ [^{}]+ \}`) // a set of a rule
	fading      = regexp.MustCompile(` (packets|bytes|expires) \S+`)
	sized       = regexp.MustCompile(` (hashsize|maxelem|bucketsize|initval) \S+`)
	member      = regexp.MustCompile(`^(add \S+ \S+).*`)
)

// state is our objects in the node's kernel, in the output of the usual programs: nft,
// iptables-save and ipset. Counters, temporary objects, the order of sets and differences
// between agents are left out.
func (w *randomRival) state() []string {
	out, _ := w.Node.Run("sh", "-c", w.rules.listing) // a table that is not there shows
	var lines, elements []string
	table, where, listing := "", "", false
	for line := range strings.Lines(servingAddr.ReplaceAllString(out, "SERVING")) {
		line = strings.TrimSpace(line)
		switch {
		case (line == "" || line == "}") && !listing: // between objects, which have no order
			continue
		case strings.HasPrefix(line, "*") || strings.HasPrefix(line, "table "):
			table, where = line, ""
		case strings.HasPrefix(line, "set ") || strings.HasPrefix(line, "map "):
			where = line
		case strings.HasPrefix(line, "chain "):
			where = line
		}
		if strings.HasPrefix(line, "create NG") || strings.HasPrefix(line, "add NG") {
			table, where = "", ""
		}
		rest, begins := strings.CutPrefix(line, "elements = {")
		if listing = listing || begins; !listing {
			line = anonymous.ReplaceAllStringFunc(fading.ReplaceAllString(line, ""), sortedSet)
			if strings.HasPrefix(line, ":") {
				line, _, _ = strings.Cut(line, " ")
			}
			line = member.ReplaceAllString(line, "$1")
			line = sized.ReplaceAllString(line, "")
			lines = append(lines, strings.TrimSpace(table+" "+where+" "+line))
			continue
		}
		text, ends := strings.CutSuffix(rest, "}")
		elements = append(elements, strings.Split(text, ",")...)
		if !ends {
			continue
		}
		if !passing.MatchString(where) {
			for i, e := range elements {
				elements[i], _, _ = strings.Cut(strings.TrimSpace(e), " timeout ")
			}
			slices.Sort(elements)
			lines = append(lines, table+" "+where+" "+strings.Join(elements, " "))
		}
		elements, listing = nil, false
	}
	slices.Sort(lines)
	return lines
}

// sortedSet sorts the elements of an anonymous set.
func sortedSet(text string) string {
	elements := strings.Split(strings.Trim(text, "{ }"), ", ")
	slices.Sort(elements)
	return "{ " + strings.Join(elements, ", ") + " }"
}
