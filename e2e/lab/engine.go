package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
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
