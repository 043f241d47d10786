package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/namegate/namegate/e2e/lab"
)

// lookAround gives the pods a resolv.conf, prints the address of the page and how to look at
// everything, and waits until ctx ends.
func (s *stage) lookAround(ctx context.Context, p *printer, page string) error {
	for pod := range podNumbers {
		if err := writeResolvConf(s.Pod(pod).Name); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.out, "\n%s\n\n  %s\n", p.paint(bold, "The page (`namegate ui`) shows what happened, and goes on. Open it in a browser on this machine:"), page)
	fmt.Fprint(p.out, "\n"+p.paint(bold, "It stands until Ctrl-C. Look around from another terminal, as root:")+"\n")
	for _, h := range s.hints() {
		fmt.Fprintf(p.out, "\n  %s\n", p.paint(dim, "# "+h.why))
		for _, c := range h.commands {
			fmt.Fprintf(p.out, "  %s\n", c)
		}
	}
	fmt.Fprint(p.out, "\n  Ctrl-C takes everything down. After a kill -9 of the demo: make demo-clean\n")
	<-ctx.Done()
	fmt.Fprintln(p.out, "\ntaking everything down")
	return nil
}

// hint is a purpose and the commands for it.
type hint struct {
	why      string
	commands []string
}

func (s *stage) hints() []hint {
	in := func(h *lab.Host, command string) string { return "ip netns exec " + h.Name + " " + command }
	a, b := s.Pod(client).Host, s.Pod(neighbour).Host
	open := hint{"what is open: the sets, with the time that is left and the names as comments", []string{in(s.Node, "ipset list")}}
	rules := []string{in(s.Node, "iptables-save -t mangle"), in(s.Node, "iptables-save -t security"), in(s.Node, "nft list table inet namegate")}
	if s.nftAlone() {
		open = hint{"what is open: grants, with the names", []string{s.binary + " grants --socket " + s.agent.Socket()}}
		rules = []string{in(s.Node, "nft list table inet namegate"), in(s.Node, "nft list table inet namegate-net")}
	}
	return []hint{
		{"be the client: an allowed name, an unlisted one, an address", []string{
			in(a, "dig +short "+listedName),
			in(a, "curl --max-time 3 http://"+listedName+"/"),
			in(a, "curl --max-time 3 http://"+unlistedName+"/"),
			in(a, "curl --max-time 3 http://"+raw4+"/"),
		}},
		{"be its neighbour", []string{in(b, "curl --max-time 3 http://"+listed4+"/")}},
		{"the agent's own view, and its decisions as they come", []string{
			s.binary + " status --socket " + s.agent.Socket(),
			s.binary + " ui --socket " + s.agent.Socket(),
			"tail -f " + filepath.Join(s.dir, "audit.log"),
		}},
		open,
		{"the rules that ask the sets, and the two nets", rules},
		{"the connections that were admitted bear the mark 64", []string{in(s.Node, "conntrack -L")}},
		{"change a policy: the agent reads it at once", []string{
			"$EDITOR " + filepath.Join(s.dir, "manifests", "allow-web.yaml"),
		}},
		{"kill the agent: what is open stays open, the rest stays closed, DNS goes to the resolver 3 s later", []string{
			"kill -9 $(ip netns pids " + s.Node.Name + ")",
		}},
	}
}

// netnsEtc is where `ip netns exec` finds files that replace those of /etc for
// one namespace (ip-netns(8)).
const netnsEtc = "/etc/netns"

func writeResolvConf(namespace string) error {
	dir := filepath.Join(netnsEtc, namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("give %s a resolv.conf: %w", namespace, err)
	}
	text := "nameserver " + lab.Resolver4.String() + "\n"
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("give %s a resolv.conf: %w", namespace, err)
	}
	return nil
}
