package suggest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Log gathers the lines of an audit log: by workload, by name for all namespaces, and those of
// nodes. It has each name, port and address once, however many lines there are. It is for one
// goroutine.
type Log struct {
	// Guard, unless nil, is the guard against rebinding as it is by default: why a name
	// does not open an address, "" if it does.
	Guard     func(fqdn.Name, netip.Addr) string
	workloads map[workloadKey]*workload
	// existing are the policies that lines name: "namespace/name", of a cluster policy "name".
	existing map[string]bool
	common   map[string]*commonName
	// selected are the namespaces with pods that a policy of the namespace selects.
	selected map[string]bool
	nodes    ofNodes
}

// workloadKey tells workloads apart. A pod whose labels say nothing is one by itself.
type workloadKey struct{ namespace, selector, pod string }

// workload is what lines say of alike pods.
type workload struct {
	workloadKey
	labels        map[string]string
	pods          map[string]bool
	first, last   time.Time // of denied connections
	denied, would uint64
	needs         allNeeds
	left          map[leftKey]*Left
	audits        map[string]bool // the policies that only audit the pods
	baseline      bool            // the Baseline tier denied something
	asked         map[string]asking
	late          map[string]time.Duration // after the question, where no grant lasts as long
	guarded       map[string]string        // an address of a name that the guard keeps closed, and why
}

// longest is how long an answer opens an address at most, by default.
const longest = policy.DefaultMaxTTL + policy.DefaultGrace

// port is one port of a protocol; a protocol that a policy has no word for has none.
type port struct {
	protocol policy.Protocol
	number   uint16
}

// anything is the need of a protocol that only a rule without ports opens.
var anything = port{policy.AnyProtocol, 0}

// needs is the ports on which a name was dialled.
type needs map[port]bool

// allNeeds are needs by name.
type allNeeds map[string]needs

func (a allNeeds) add(name string, p port) {
	if a[name] == nil {
		a[name] = needs{}
	}
	a[name][p] = true
}

// sets returns the port set of each name.
func (a allNeeds) sets() map[string]policy.PortSet {
	sets := map[string]policy.PortSet{}
	for name, ports := range a {
		sets[name] = ports.set()
	}
	return sets
}

// dialledPort returns the port of a line's destination.
func dialledPort(line audit.Line) port {
	if p, known := protocols[line.Protocol]; known && line.Destination.Port > 0 {
		return port{p, line.Destination.Port}
	}
	return anything
}

// asking is how the question for a name went that nothing matches.
type asking uint8

const (
	answered asking = 1 << iota // with an address
	refused                     // no upstream was asked
)

// NewLog returns a log without lines.
func NewLog() *Log {
	return &Log{
		workloads: map[workloadKey]*workload{}, existing: map[string]bool{}, common: map[string]*commonName{}, selected: map[string]bool{},
		nodes: ofNodes{allNeeds{}, allNeeds{}, map[string]bool{}, map[string]bool{}, map[string]map[uint32]bool{}},
	}
}

// Add adds a line. The error says why no agent can have written it: such a line is left
// out.
func (l *Log) Add(line audit.Line) error {
	if line.Host != nil {
		return l.node(line)
	}
	if line.Source != nil { // no rule for egress is about it
		return nil
	}
	w, err := l.workload(line.Pod)
	if err != nil {
		return err
	}
	for _, m := range line.Matches {
		l.sees(line.Pod.Namespace, m.Policy, !m.Audit)
	}
	for _, id := range line.Policies {
		l.sees(line.Pod.Namespace, id, line.Verdict == audit.Denied.String())
	}
	w.pods[line.Pod.Name] = true
	if line.Kind != audit.KindFlow {
		l.question(w, line)
		return nil
	}
	if line.Destination == nil {
		return errNoDestination
	}
	w.flow(line, l.Guard)
	l.commonFlow(line)
	return nil
}

// sees notes a policy that a line names.
func (l *Log) sees(namespace, id string, enforces bool) {
	l.existing[id] = true
	if enforces && !policy.OfCluster(id) {
		l.selected[namespace] = true
	}
}

// checkPod says why a line's pod is none.
func checkPod(pod audit.LinePod) error {
	if strings.Contains(pod.Name, "+") {
		return fmt.Errorf("%q of namespace %q are several pods that claim one address, for which no policy opens anything", pod.Name, pod.Namespace)
	}
	if len(validation.IsDNS1123Label(pod.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(pod.Name)) > 0 {
		return fmt.Errorf("pod %q of namespace %q cannot exist", pod.Name, pod.Namespace)
	}
	return nil
}

func (l *Log) workload(pod audit.LinePod) (*workload, error) {
	if err := checkPod(pod); err != nil {
		return nil, err
	}
	set, err := labels.ConvertSelectorToLabelsMap(pod.Workload)
	if err != nil {
		return nil, fmt.Errorf("workload %q of pod %s/%s: %w", pod.Workload, pod.Namespace, pod.Name, err)
	}
	key := workloadKey{namespace: pod.Namespace, selector: set.String()}
	if len(set) == 0 {
		key.pod = pod.Name
	}
	w := l.workloads[key]
	if w == nil {
		w = &workload{
			workloadKey: key, labels: set, pods: map[string]bool{}, needs: allNeeds{}, left: map[leftKey]*Left{},
			audits: map[string]bool{}, asked: map[string]asking{}, late: map[string]time.Duration{}, guarded: map[string]string{},
		}
		l.workloads[key] = w
	}
	return w, nil
}

var errNoDestination = errors.New("a flow without a destination")

// flow takes connections that were denied, or would be.
func (w *workload) flow(line audit.Line, guard func(fqdn.Name, netip.Addr) string) {
	if line.Verdict == audit.WouldAllow.String() { // a line of the verdict denied counts it
		return
	}
	w.count(line)
	switch line.Reason {
	case audit.ReasonServerName:
		var claimed []string
		if line.ServerName != "" {
			claimed = []string{line.ServerName}
		}
		w.leave(line, LeftServerName, claimed)
		return
	case audit.ReasonLimit, audit.ReasonUnchecked: // allowed already
		return
	}
	would := line.Verdict == audit.WouldDeny.String()
	if would {
		for _, id := range line.Policies {
			w.audits[id] = true
		}
	}
	var own, covered []string
	w.baseline = w.baseline || line.Reason == audit.ReasonRule && line.Tier == policy.Baseline.String()
	for _, n := range line.Names {
		switch opens := n.Match != nil && (would || !n.Match.Audit); {
		case n.Pod != "": // what another asked opens nothing for this pod
		case opens && line.Reason != audit.ReasonPorts && line.Reason != audit.ReasonRule:
			covered = append(covered, n.Name)
		default:
			own = append(own, n.Name)
		}
	}
	kind, names := LeftKind(""), own
	switch {
	case line.Reason == audit.ReasonRule && line.Tier == policy.Admin.String():
		kind = LeftCluster
	case line.Reason == audit.ReasonRule && line.Tier == policy.Namespace.String():
		kind = LeftEncrypted
	case line.Reason == audit.ReasonTranslated: // no name allows what is reached
		kind, names = LeftAddress, nil
	case line.Reason == audit.ReasonBlocked:
		kind, names = LeftBlocked, append(covered, own...)
	case len(own) == 0 && len(covered) > 0:
		kind, names = LeftExpired, covered
	case len(own) == 0:
		kind, names = LeftAddress, foreign(line.Names)
	}
	if kind != "" {
		w.leave(line, kind, names)
		return
	}
	dialled := dialledPort(line)
	if dialled == anything {
		w.leave(line, LeftProtocol, own)
	}
	writable := 0
	for _, name := range own {
		if text, ok := canonical(name); ok {
			w.needs.add(text, dialled)
			writable++
			w.guard(text, line.Destination.Address, guard)
			if after := since(line, name); after > longest {
				w.late[text] = max(w.late[text], after)
			}
		}
	}
	if writable == 0 {
		w.leave(line, LeftName, own)
	}
}

var protocols = map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP}

// count notes when connections were denied, and how many.
func (w *workload) count(line audit.Line) {
	last := line.Time
	if line.Last.After(last) {
		last = line.Last
	}
	if w.first.IsZero() || line.Time.Before(w.first) {
		w.first = line.Time
	}
	if last.After(w.last) {
		w.last = last
	}
	if line.Verdict == audit.WouldDeny.String() {
		w.would += max(line.Count, 1)
	} else {
		w.denied += max(line.Count, 1)
	}
}

// guard notes that the guard would keep an address of the name closed. Of several the
// least counts, so that the order of lines does not.
func (w *workload) guard(name, address string, guard func(fqdn.Name, netip.Addr) string) {
	n, err := fqdn.ParseName(name)
	a, wrong := netip.ParseAddr(address)
	if guard == nil || err != nil || wrong != nil {
		return
	}
	if why := guard(n, a); why != "" {
		if text := address + ", " + why; w.guarded[name] == "" || text < w.guarded[name] {
			w.guarded[name] = text
		}
	}
}

// question takes a decision: a name that nothing matches may be wanted, and pods of many
// namespaces may need one.
func (l *Log) question(w *workload, line audit.Line) {
	if line.Question == nil {
		return
	}
	name, ok := canonical(decidedName(line))
	if !ok {
		return
	}
	refuses, unlimited := line.Verdict == audit.Refused.String(), line.Limit == "" // else the limit keeps the name from being answered, and not a match
	switch {
	case len(line.Matches) > 0 || !unlimited:
	case refuses:
		w.asked[name] |= refused
	case len(line.Answers) > 0:
		w.asked[name] |= answered
	}
	switch {
	case line.Verdict == audit.Allowed.String(), line.Verdict == audit.Renewed.String(), refuses && unlimited, line.Verdict == audit.Unmatched.String() && len(line.Answers) > 0:
		n := l.commonName(name, line.Pod.Namespace)
		for _, a := range line.Answers {
			for _, g := range a.Grants {
				if set, err := policy.ParsePortSet(g.Ports); err == nil {
					n.opened = policy.NewPortSet(append(n.opened, set.Ranges()...)...).Ranges()
				}
			}
		}
	case deniedByAdmin(line):
		l.commonName(name, line.Pod.Namespace).denied = true
	}
}

// decidedName returns the name of a question that rules accept: of a name of the cluster that leads
// out of it, the name outside.
func decidedName(line audit.Line) string {
	if line.Verdict != audit.Denied.String() && slices.Contains(line.Chain, line.Via) {
		return line.Via
	}
	return line.Question.Name
}

// since returns how long after the question for a name the pod dialled.
func since(line audit.Line, name string) time.Duration {
	for _, n := range line.Names {
		if n.Name == name && n.Pod == "" && !n.Asked.IsZero() {
			return line.Time.Sub(n.Asked)
		}
	}
	return 0
}

// canonical returns a name as a policy writes it, and whether one can.
func canonical(name string) (string, bool) {
	p, err := fqdn.ParseExact(name)
	return p.String(), err == nil
}

// foreign returns the names that other pods asked for, with those pods.
func foreign(names []audit.LineName) []string {
	var texts []string
	for _, n := range names {
		texts = append(texts, strings.TrimSpace(n.Name+" of "+n.Pod))
	}
	return texts
}
