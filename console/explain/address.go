package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/fqdn"
)

// dnsPort is where the resolvers of pods answer.
const dnsPort = 53

// address answers for an address.
func (in *inquiry) address() {
	a, what := in.to.Addr, in.to.Addr.String()
	if in.f.Unresolved {
		if p := in.podAt(a); p != nil {
			what = p.String()
		}
	}
	switch {
	case a.IsLoopback():
		in.settle(Allowed, "%s is the pod itself: what it sends there never leaves it", a)
		return
	case slices.Contains(in.f.Pod.IPs, a) && in.f.Services[a] == nil:
		in.settle(Allowed, "%s is the pod's own address, which it may always reach", what)
		return
	case slices.Contains(in.f.Resolvers, a) && in.isDNS() && in.f.View.ImpliesDNS():
		in.settle(Allowed, "%s is a resolver: the agent answers in its place", what)
		return
	}
	names := in.seen(a)
	open, checked := in.open(func(_ fqdn.Name, addr string) bool { return addr == a.String() })
	r := in.reached(a)
	var asked []*policy.Match
	for _, n := range names {
		if n.own {
			asked = append(asked, policy.Decide(in.f.View, policy.Query{Name: n.name, Outside: n.Blocked == audit.BlockedOutside, Would: in.audited()}).Matches...)
		}
	}
	over := in.overrules(asked, func() reach { return in.reached(a) })
	unknown := in.unknownEnd(a, r)
	switch {
	case unknown != nil:
		in.unknownAddress(what, unknown)
	case over != nil:
		in.overruled(what, over)
	case len(open) > 0:
		in.settle(Allowed, "the pod asked for %s, and the address is open on %s until %s", open[0].Name, open[0].Ports, open[0].until())
	case r.all():
		in.permitted(what, r)
	case len(checked) > 0:
		in.checked("the address is open", checked)
	case in.f.Unresolved:
		in.notReached(what, a, r)
	case in.ledOn(a):
		in.settle(Denied, "%s leads %s elsewhere, and no policy allows what is reached", in.serviceText(in.f.Services[a]), a)
		in.notPermitted(a, r)
	default:
		in.byNames(names)
		in.notPermitted(a, r)
	}
}

// isDNS tells whether what is asked for is a query: port 53 of either protocol, or
// no port at all.
func (in *inquiry) isDNS() bool {
	return (in.to.Port == dnsPort || in.to.Port == 0) && (in.to.Protocol == policy.AnyProtocol || in.to.Protocol == policy.TCP || in.to.Protocol == policy.UDP)
}

// alias is a name under which the address was seen.
type alias struct {
	Seen
	name fqdn.Name
	own  bool // this pod asked
}

// seen lists the names of the address: this pod's first, then the newest first.
func (in *inquiry) seen(a netip.Addr) (names []alias) {
	at := map[fqdn.Name]int{}
	add := func(n alias) {
		if i, known := at[n.name]; known {
			if old := &names[i]; old.own == n.own && n.Asked.After(old.Asked) {
				*old = n
			}
			return
		}
		at[n.name] = len(names)
		names = append(names, n)
	}
	for _, s := range in.f.Seen {
		if s.Address == a {
			add(alias{Seen{Name: s.Name.String(), Address: a.String(), Asked: s.Asked, Blocked: s.Blocked}, s.Name, true})
		}
	}
	for _, o := range slices.Concat(in.f.Open, in.f.Ended) {
		if o.Addr == a {
			add(alias{Seen{Name: o.Name.String(), Address: a.String()}, o.Name, true})
		}
	}
	for _, s := range in.f.Others {
		if s.Address == a {
			add(alias{Seen{Name: s.Name.String(), Address: a.String(), Asked: s.Asked, Pod: s.Pod.String()}, s.Name, false})
		}
	}
	slices.SortStableFunc(names, func(a, b alias) int {
		return cmp.Or(policy.CompareBool(b.own, a.own), b.Asked.Compare(a.Asked))
	})
	if more := len(names) - maxNames; more > 0 {
		in.note("%s has %d more names, which are not looked at", a, more)
		names = names[:maxNames]
	}
	for i := range names {
		if n := &names[i]; in.f.Blocked != nil {
			n.Blocked = in.f.Blocked(n.name, a)
		}
		if !names[i].own || !names[i].Asked.IsZero() { // its own grants are listed as such
			in.said.Names = append(in.said.Names, names[i].Seen)
		}
	}
	return names
}

// maxNames bounds the names of one address: those of a content network have thousands.
const maxNames = fqdnnp.MaxMatches

// byNames answers for an address that is not open, by its names: the one that is
// nearest to being allowed decides.
func (in *inquiry) byNames(names []alias) {
	nearest, answer := 6, func() {
		in.settle(Denied, "no pod of this node resolved the address lately: the pod dials it as an address, or learnt it elsewhere")
		in.byAddress()
	}
	for _, n := range names {
		s := in.stand(n.name)
		is := func(rank int, how func()) {
			if rank < nearest {
				nearest, answer = rank, how
			}
		}
		switch {
		case len(s.covers) > 0 && s.covers[0].ServerName && (in.insideCluster() || n.Blocked == audit.BlockedInside):
			is(2, func() { in.opensNothing(s.covers[0], n.name) })
		case len(s.covers) > 0 && n.Blocked != "":
			is(2, func() { in.blocked(n.name, s.covers[0], []Seen{n.Seen}) })
		case len(s.covers) > 0 && n.own:
			is(0, func() {
				in.onceAsked(s.covers[0], n.name, "%s covers %s, whose address this is, on %s; it is opened when the pod asks for the name", in.quoted(s.covers[0]), n.Name, s.covers[0].Ports)
			})
		case len(s.covers) > 0:
			is(1, func() {
				in.onceAsked(s.covers[0], n.name, "%s covers %s, whose address this is; this pod never asked for it, and what other pods ask opens nothing for it", in.quoted(s.covers[0]), n.Name)
			})
		case len(s.short) > 0:
			is(3, func() { in.short(n.name, s.short) })
		case len(s.audit) > 0:
			is(4, func() { in.auditOnly(n.name, s.audit[0]) })
		default:
			is(5, func() { in.unmatchedNames(names) })
		}
	}
	answer()
}

// unmatchedNames answers where nothing matches any name of the address.
func (in *inquiry) unmatchedNames(names []alias) {
	var own, others []fqdn.Name
	for _, n := range names {
		if n.own {
			own = append(own, n.name)
		} else {
			others = append(others, n.name)
		}
	}
	if len(own) > 0 {
		in.settle(Denied, "the pod asked for %s, and no match of its policies covers that", list(own))
		for _, n := range own {
			in.nearMisses(n)
			in.elsewhere(n)
		}
		in.write("", own...)
		return
	}
	in.settle(Denied, "this pod never asked for a name of the address; others know it as %s, which no match of its policies covers", list(others))
	in.do("let the pod itself ask its resolver for the name; names from files, from DNS over HTTPS or from other resolvers pass the agent by")
	in.write("", others...)
}

// byAddress says what to do about an address without a name.
func (in *inquiry) byAddress() {
	switch {
	case in.f.Hidden:
		in.do("pods that you may not see asked for a name of the address; ask your administrator which, or what the pod's configuration names")
	case in.f.Inside != "":
		in.do("%s is the address of a %s: let the pod ask for its name in the cluster, such as NAME.NAMESPACE.svc.%s, and allow that name", in.to.Addr, in.f.Inside, in.f.Domain)
	default:
		in.do("policies allow names: let the pod connect to a name, and ask again with that; `namegate audit --pod %s` shows which names it asks for", in.f.Pod)
	}
}
