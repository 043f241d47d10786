package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/fqdn"
)

// dialect is how a system reads an asterisk in a name.
type dialect struct {
	dots bool // it matches dots too: any number of labels
	part bool // it may be a part of a label
	only bool // it may only be the whole first label
	many bool // there may be several of them
	deep bool // ** as the first label is one or more labels
	// A rule for the name of a Service does not concern the Service's address: the system judges
	// connections behind their translation, or by names the connections that leave the cluster.
	outside bool
	about   string
}

// The dialects. Sources: Cilium, pkg/fqdn/matchpattern (** since 1.19); GKE, "Control Pod egress
// traffic using FQDN network policies"; Calico Enterprise, "DNS policy"; Antrea, pkg/agent/controller/networkpolicy/fqdn.go; the DomainName of the
// Kubernetes network policy API, which AWS has too; OVN-Kubernetes, EgressFirewall; Istio, ServiceEntry.
var (
	ciliumNames = dialect{outside: true, part: true, many: true, deep: true, about: "Cilium reads * as a part of one label"}
	gkeNames    = dialect{outside: true, part: true, many: true, about: "GKE reads * as a part of one label"}
	calicoNames = dialect{outside: true, dots: true, about: "Calico reads * as one or more labels"}
	antreaNames = dialect{outside: true, dots: true, part: true, many: true, about: "Antrea reads * as any characters, with dots"}
	awsNames    = dialect{dots: true, only: true, about: "AWS reads * as one or more labels"}
	ovnNames    = dialect{only: true, about: "OVN-Kubernetes reads * as one label"}
	istioNames  = dialect{dots: true, only: true, about: "Istio reads * as one or more labels"}
)

// asterisks are several in a row.
var asterisks = regexp.MustCompile(`[*]{2,}`)

// names is what a name of another system is here.
type names struct {
	matches []v1alpha1.Match
	grade   Grade // "" if the matches are the same names
	message string
}

// convert returns the matches of a name. The error is for what the system itself refuses, and
// for names that DNS does not have.
func (d dialect) convert(text string) (names, error) {
	if !strings.Contains(text, "*") {
		if _, err := fqdn.ParseExact(text); err != nil {
			return names{}, err
		}
		return names{matches: []v1alpha1.Match{{Name: &text}}}, nil
	}
	body := strings.TrimSuffix(text, ".")
	one := asterisks.ReplaceAllString(body, "*")
	if one != body && !d.part {
		return names{}, fmt.Errorf("%q has several * in a row; %s", text, d.about)
	}
	if err := d.check(text, one); err != nil {
		return names{}, err
	}
	var n names
	patterns := []string{one}
	switch deep := one != body && (one == "*" || strings.HasPrefix(body, "**") && strings.HasPrefix(one, "*.")); {
	case d.deep && deep:
		n.grade, n.message = Wider, fmt.Sprintf("%q is one label in Cilium before 1.19, and one or more labels since then and here; write one * if the policy is of an earlier release", text)
		if one != "*" {
			patterns = []string{"*" + one}
		}
	case one == "*" && one != body && !d.dots:
		n.grade, n.message = Wider, fmt.Sprintf("%q is a name of one label there, and %q is every name; write the names that are meant", text, one)
	case one == "*":
	case d.dots:
		var same bool
		if patterns, same = acrossDots(one); !same {
			n.grade, n.message = Narrower, fmt.Sprintf("%s; here * is a part of one label, except at the front, so %q has no equal", d.about, text)
		}
	}
	if n.grade == "" && one != body {
		n.grade, n.message = Changed, fmt.Sprintf("%q is %q: several asterisks are as good as one there, and ** as the first label is one or more labels here", text, one)
	}
	for i := range patterns {
		if _, err := fqdn.ParsePattern(patterns[i]); err != nil {
			return names{}, err
		}
		n.matches = append(n.matches, v1alpha1.Match{Pattern: &patterns[i]})
	}
	return n, nil
}

// check says why the system refuses a name with single asterisks.
func (d dialect) check(text, one string) error {
	rest := strings.TrimPrefix(one, "*.")
	switch {
	case strings.HasSuffix(one, "."):
		return fmt.Errorf("%q has an empty label", text)
	case one == "*" && !d.only:
		return nil
	case d.only && (rest == one || strings.Contains(rest, "*")):
		return fmt.Errorf("%q: the * may only be the whole first label; %s", text, d.about)
	case !d.many && strings.Count(one, "*") > 1:
		return fmt.Errorf("%q has several *; %s, and allows one", text, d.about)
	}
	for label := range strings.SplitSeq(one, ".") {
		if !d.part && label != "*" && strings.Contains(label, "*") {
			return fmt.Errorf("%q: the * may only be a whole label; %s", text, d.about)
		}
	}
	return nil
}

// acrossDots returns the patterns of a name in which an asterisk matches dots too, and whether
// they are the same names. There is a wildcard for several labels at the front alone.
func acrossDots(text string) (patterns []string, same bool) {
	rest, whole := text, 0
	for strings.HasPrefix(rest, "*.") {
		rest, whole = rest[len("*."):], whole+1
	}
	body := strings.TrimPrefix(rest, "*")
	switch {
	case strings.Contains(body, "*"), whole == 0 && body == rest:
		return []string{text}, false
	case whole > 0:
		return []string{"*" + text}, true
	}
	return []string{text, "**." + text}, true
}

// inside tells whether a match includes names of Services or pods below the cluster's domain:
// NAME.NAMESPACE.svc, and HOSTNAME before it.
func (n names) inside(domain fqdn.Name) bool {
	return slices.ContainsFunc(n.matches, func(m v1alpha1.Match) bool {
		p := pattern(m)
		return p.MatchesBelow(domain, 3) || p.MatchesBelow(domain, 4)
	})
}
