package suggest

import (
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/namegate/namegate/policy"
)

// fold returns needs in which names with a common parent are one pattern, port by
// port: where o.Fold or more names of a parent were dialled on a port. A parent below
// which anybody can have a name (com, co.uk, s3.amazonaws.com) folds nothing.
func fold(all allNeeds, o Options) allNeeds {
	byPort := map[port][]string{}
	for name, ports := range all {
		for p := range ports {
			byPort[p] = append(byPort[p], name)
		}
	}
	folded := allNeeds{}
	for p, names := range byPort {
		for _, name := range foldNames(names, o) {
			folded.add(name, p)
		}
	}
	for name, ports := range folded {
		if ports[anything] {
			folded[name] = needs{anything: true}
		}
	}
	return folded
}

// foldNames returns the names, some of them as patterns.
func foldNames(names []string, o Options) []string {
	below := map[string][]string{}
	for _, name := range names {
		if at := parent(name, o.Deep); at != "" {
			below[at] = append(below[at], name)
		}
	}
	gone := map[string]bool{}
	var kept []string
	for _, at := range slices.Sorted(maps.Keys(below)) {
		if len(below[at]) < o.Fold {
			continue
		}
		for _, name := range below[at] {
			gone[name] = true
		}
		if o.Deep {
			kept = append(kept, "**."+at)
		} else {
			kept = append(kept, "*."+at)
		}
	}
	for _, name := range names {
		if !gone[name] {
			kept = append(kept, name)
		}
	}
	return kept
}

// parent returns the parent of a name's pattern, "" for none: the name without its first
// label, or with deep its registrable domain.
func parent(name string, deep bool) string {
	_, above, found := strings.Cut(name, ".")
	if !found {
		return ""
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil || domain == name {
		return ""
	}
	if deep {
		return domain
	}
	return above
}

// needless tells whether one of the patterns allows a name all its ports.
func needless(allowed map[string]policy.PortSet, name string, ports policy.PortSet) bool {
	if strings.Contains(name, "*") {
		return false // two patterns of fold have no name in common
	}
	mark := "*."
	for _, above, found := strings.Cut(name, "."); found; _, above, found = strings.Cut(above, ".") {
		for _, pattern := range []string{mark + above, "**." + above} {
			set, is := allowed[pattern]
			if is && policy.NewPortSet(slices.Concat(set.Ranges(), ports.Ranges())...) == set {
				return true
			}
		}
		mark = "**." // one star is one label
	}
	return false
}
