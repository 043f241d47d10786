package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// EngineStyle is how an Engine lets pass what it allows.
type EngineStyle string

// The styles, after two engines that have them: what is allowed goes on to the rules of
// others, or leaves the table at once, as established packets leave mangle at its top.
const (
	KubeRouter EngineStyle = "kube-router"
	Felix      EngineStyle = "felix"
)

// rewriteEvery is how often an Engine writes its table whole.
const rewriteEvery = 200 * time.Millisecond

// EnginePod is a pod as an Engine knows it.
type EnginePod struct {
	Namespace string
	Labels    map[string]string
	Addrs     []netip.Addr
	// Local pods are those whose egress the Engine limits.
	Local bool
}

// Engine is another program on the node that enforces the egress of NetworkPolicies: by
// the filter table, at its top, which it writes anew all the time with nothing in it of
// anybody else.
type Engine struct {
	node       *Host
	style      EngineStyle
	pods       []EnginePod
	namespaces map[string]map[string]string
	over       chan struct{}
	done       chan struct{}

	mu     sync.Mutex
	texts  [2]string // for iptables-restore and ip6tables-restore
	writes int
	err    error
}

// restores are the programs that the texts are for.
var restores = [2]string{"iptables-restore", "ip6tables-restore"}

// NewEngine starts an engine that knows pods and the labels of namespaces, and no
// NetworkPolicy.
func (l *Lab) NewEngine(style EngineStyle, pods []EnginePod, namespaces map[string]map[string]string) (*Engine, error) {
	e := &Engine{node: l.Node, style: style, pods: pods, namespaces: namespaces, over: make(chan struct{}), done: make(chan struct{})}
	if style == Felix {
		for _, program := range []string{"iptables", "ip6tables"} {
			if _, err := e.node.Run(program, "-t", "mangle", "-I", "PREROUTING", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"); err != nil {
				return nil, err
			}
		}
	}
	if err := e.Set(nil); err != nil {
		return nil, err
	}
	go e.run()
	return e, nil
}

// Set makes the engine enforce these NetworkPolicies, and those alone.
func (e *Engine) Set(policies []*networkingv1.NetworkPolicy) error {
	v4, err4 := e.render(policies, false)
	v6, err6 := e.render(policies, true)
	if err := errors.Join(err4, err6); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = [2]string{v4, v6}
	return e.write()
}

// Writes is how often the engine has written its tables.
func (e *Engine) Writes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writes
}

func (e *Engine) write() error {
	for i, program := range restores {
		if err := e.node.Pipe(e.texts[i], program); err != nil {
			return fmt.Errorf("the engine: %w", err)
		}
	}
	e.writes++
	return nil
}

func (e *Engine) run() {
	defer close(e.done)
	for {
		select {
		case <-e.over:
			return
		case <-time.After(rewriteEvery):
		}
		e.mu.Lock()
		if err := e.write(); err != nil && e.err == nil {
			e.err = err
		}
		e.mu.Unlock()
	}
}

// Stop ends the engine, whose rules stay, and returns the first of its errors.
func (e *Engine) Stop() error {
	close(e.over)
	<-e.done
	return e.err
}

// engineChains are the engine's chains in the making, for one family.
type engineChains struct {
	engine *Engine
	v6     bool
	names  []string
	rules  []string
}

// chain begins a chain.
func (c *engineChains) chain() string {
	name := fmt.Sprintf("ENGINE-%d", len(c.names))
	c.names = append(c.names, name)
	return name
}

func (c *engineChains) add(chain, format string, args ...any) {
	c.rules = append(c.rules, "-A "+chain+" "+strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// mine tells whether an address is of the family.
func (c *engineChains) mine(a netip.Addr) bool { return a.Is6() == c.v6 }

// allow is the target for what a rule allows.
func (c *engineChains) allow() string {
	if c.engine.style == Felix {
		return "ACCEPT"
	}
	return "MARK --set-xmark 0x10000/0x10000"
}

// render writes the whole filter table.
func (e *Engine) render(policies []*networkingv1.NetworkPolicy, v6 bool) (string, error) {
	c := &engineChains{engine: e, v6: v6}
	top := c.chain()
	if v6 {
		for typ := 133; typ <= 137; typ++ {
			c.add(top, "-p ipv6-icmp -m icmp6 --icmpv6-type %d -j ACCEPT", typ)
		}
	}
	c.add(top, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	for _, p := range e.pods {
		if !p.Local {
			continue
		}
		limits, err := e.selecting(policies, p)
		if err != nil {
			return "", err
		}
		if len(limits) > 0 {
			if err := c.pod(top, p, limits); err != nil {
				return "", err
			}
		}
	}
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n")
	for _, n := range c.names {
		b.WriteString(":" + n + " - [0:0]\n")
	}
	b.WriteString("-A INPUT -j " + top + "\n-A FORWARD -j " + top + "\n" + strings.Join(c.rules, "\n") + "\nCOMMIT\n")
	return b.String(), nil
}

// selecting returns the NetworkPolicies that limit a pod's egress.
func (e *Engine) selecting(policies []*networkingv1.NetworkPolicy, p EnginePod) (out []*networkingv1.NetworkPolicy, err error) {
	for _, n := range policies {
		egress := slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || len(n.Spec.PolicyTypes) == 0 && len(n.Spec.Egress) > 0
		selects, err := matches(&n.Spec.PodSelector, p.Labels)
		if err != nil {
			return nil, err
		}
		if egress && selects && n.Namespace == p.Namespace {
			out = append(out, n)
		}
	}
	return out, nil
}

func matches(s *metav1.LabelSelector, of map[string]string) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of)), err
}

// pod writes the chain of a pod that NetworkPolicies limit.
func (c *engineChains) pod(top string, p EnginePod, limits []*networkingv1.NetworkPolicy) error {
	chain := c.chain()
	for _, n := range limits {
		for _, rule := range n.Spec.Egress {
			if err := c.rule(chain, n.Namespace, rule); err != nil {
				return err
			}
		}
	}
	if c.engine.style == KubeRouter {
		c.add(chain, "-m mark ! --mark 0x10000/0x10000 -j DROP")
		c.add(chain, "-j MARK --set-xmark 0x0/0x10000")
	} else {
		c.add(chain, "-j DROP")
	}
	for _, a := range p.Addrs {
		if c.mine(a) {
			c.add(top, "-s %s -j %s", a, chain)
		}
	}
	return nil
}

// rule writes one egress rule.
func (c *engineChains) rule(chain, namespace string, rule networkingv1.NetworkPolicyEgressRule) error {
	if len(rule.To) == 0 {
		c.ports(chain, "", rule.Ports)
	}
	for _, to := range rule.To {
		if to.IPBlock != nil {
			if err := c.block(chain, to.IPBlock, rule.Ports); err != nil {
				return err
			}
			continue
		}
		for _, p := range c.engine.pods {
			in, err := c.engine.peer(namespace, to, p)
			if err != nil {
				return err
			}
			for _, a := range p.Addrs {
				if in && c.mine(a) {
					c.ports(chain, "-d "+a.String(), rule.Ports)
				}
			}
		}
	}
	return nil
}

// peer tells whether a peer of a policy's rule is a pod.
func (e *Engine) peer(namespace string, to networkingv1.NetworkPolicyPeer, p EnginePod) (bool, error) {
	if to.NamespaceSelector == nil && p.Namespace != namespace {
		return false, nil
	}
	for selector, of := range map[*metav1.LabelSelector]map[string]string{to.NamespaceSelector: e.namespaces[p.Namespace], to.PodSelector: p.Labels} {
		if selector == nil {
			continue
		}
		if in, err := matches(selector, of); !in {
			return false, err
		}
	}
	return true, nil
}

func (c *engineChains) block(chain string, b *networkingv1.IPBlock, ports []networkingv1.NetworkPolicyPort) error {
	in, err := netip.ParsePrefix(b.CIDR)
	if err != nil || !c.mine(in.Addr()) {
		return err
	}
	own := c.chain()
	for _, except := range b.Except {
		c.add(own, "-d %s -j RETURN", except)
	}
	c.ports(own, "", ports)
	c.add(chain, "-d %s -j %s", in, own)
	return nil
}

// ports writes what goes to a destination, by the numbers of ports.
func (c *engineChains) ports(chain, to string, ports []networkingv1.NetworkPolicyPort) {
	if len(ports) == 0 {
		c.add(chain, "%s -j %s", to, c.allow())
	}
	for _, p := range ports {
		proto := "tcp"
		if p.Protocol != nil {
			proto = strings.ToLower(string(*p.Protocol))
		}
		if p.Port == nil {
			c.add(chain, "%s -p %s -j %s", to, proto, c.allow())
			continue
		}
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		c.add(chain, "%s -p %s --dport %d:%d -j %s", to, proto, p.Port.IntVal, last, c.allow())
	}
}
