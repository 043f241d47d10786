package kube

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// testChanges: changes and deletions of labels of pods and namespaces, and of policies,
// apply immediately, and only to their objects.
func testChanges(t *testing.T) {
	s := begin(t, "changes")
	s.run(pod("a", "node-a", map[string]string{"app": "client"}), pod("b", "node-b", map[string]string{"app": "client"}), pod("c", "node-b", nil))
	s.apply(policy("first", `{podSelector: {matchLabels: {app: client}}, egress: [{matches: [{name: example.org}]}]}`))
	took := func(what string, wait func()) {
		begin := time.Now()
		wait()
		t.Logf("%s: %v, kubectl's own time included", what, time.Since(begin).Round(time.Millisecond))
	}
	took("a new policy", func() { s.enforced(soon, "a"); s.enforced(soon, "b") })
	s.gets("a", "tcp", "example.org", 80, works)
	s.gets("a", "tcp", "other.test", 80, denied)

	s.apply(policy("first", `{podSelector: {matchLabels: {app: client}}, egress: [{matches: [{name: other.test}]}]}`))
	took("a changed policy", func() {
		s.eventually(soon, "the revocation", func() error { return s.expect("a", "tcp", "198.51.100.10:80", denied) })
	})
	s.gets("a", "tcp", "other.test", 80, works)

	s.kubectl("label", "pod", "-n", s.ns, "c", "app=client")
	took("a label that selects", func() { s.enforced(soon, "c") })
	s.kubectl("label", "pod", "-n", s.ns, "c", "app-")
	took("a label that goes", func() { s.free(soon, "c") })

	s.apply(policy("second", `{podSelector: {}, egress: [{matches: [{name: www.example.org}]}]}`))
	took("a second policy", func() { s.enforced(soon, "c") })
	s.gets("a", "tcp", "www.example.org", 80, works)
	s.gets("a", "tcp", "other.test", 80, works) // the first allows it still
	s.gets("c", "tcp", "other.test", 80, denied)

	s.kubectl("delete", "fqdnnp", "-n", s.ns, "second")
	took("the end of the second", func() { s.free(soon, "c") })
	s.dials("a", "tcp", "198.51.100.11:80", denied) // the policy's own address
	s.gets("a", "tcp", "other.test", 80, works)

	s.kubectl("delete", "fqdnnp", "-n", s.ns, "first")
	took("the end of the first", func() { s.free(soon, "a"); s.free(soon, "b") })
}

// testEnds: a deleted pod, and a deleted namespace, leave nothing in the kernel.
func testEnds(t *testing.T) {
	s := begin(t, "ends")
	s.run(pod("a", "node-a", nil), pod("b", "node-b", nil), pod("stays", "node-b", nil),
		policy("all", `{podSelector: {}, egress: [{matches: [{name: example.org}]}]}`))
	for _, p := range []string{"a", "b", "stays"} {
		s.enforced(soon, p)
		s.gets(p, "tcp", "example.org", 80, works)
	}
	var addrs []string
	for _, p := range []string{"a", "b"} {
		addrs = append(addrs, s.addresses(p)...)
	}
	s.kubectl("delete", "pod", "-n", s.ns, "a", "b", "--wait")
	s.eventually(soon, "the end of the pods", func() error { return traces(addrs) })
	s.enforced(soon, "stays")
	s.gets("stays", "tcp", "example.org", 80, works)
	addrs = s.addresses("stays")
	s.kubectl("delete", "namespace", s.ns, "--wait")
	s.eventually(soon, "the end of the namespace", func() error { return traces(addrs) })
}

// addresses returns the addresses of a pod.
func (s *scenario) addresses(pod string) []string {
	return strings.Fields(s.kubectl("get", "pod", "-n", s.ns, pod, "-o", "jsonpath={.status.podIPs[*].ip}"))
}

// traces returns an error if a node has objects of pods with these addresses, without addresses
// if it has objects of any pod.
func traces(addrs []string) error {
	for _, n := range the.Nodes {
		sets, err := n.Sets()
		if err != nil {
			return err
		}
		for block := range strings.SplitSeq(sets, "\n\n") {
			name, members, _ := strings.Cut(block, "Members:\n")
			name, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(name), "Name: "), "\n")
			// The endpoint's own sets are not about pods.
			if strings.HasSuffix(name, "-endpoint") || strings.HasSuffix(name, "-resolvers") {
				continue
			}
			if len(addrs) == 0 && strings.TrimSpace(members) != "" {
				return fmt.Errorf("%s: set %s holds %q", n.Name, name, members)
			}
			for _, a := range addrs {
				if strings.Contains(" "+strings.ReplaceAll(members, ",", " ")+" ", a+" ") || strings.Contains(members, a+"\n") {
					return fmt.Errorf("%s: set %s holds %s", n.Name, name, a)
				}
			}
		}
		rules, err := n.NFT()
		if err != nil {
			return err
		}
		if len(addrs) == 0 && strings.Contains(rules, "chain pod-") {
			return fmt.Errorf("%s: the nft table has chains of pods", n.Name)
		}
		flows, err := n.Connections()
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if _, ours, found := strings.Cut(rules, "table inet namegate {"); found && holdsAddr(kernelFilled.ReplaceAllString(ours, ""), a) {
				return fmt.Errorf("%s: the nft table holds %s", n.Name, a)
			}
			for line := range strings.Lines(flows) {
				if strings.Contains(line, "src="+a+" ") && marked(line) {
					return fmt.Errorf("%s: a connection of %s is admitted: %s", n.Name, a, line)
				}
			}
		}
	}
	return nil
}

// kernelFilled are the sets in which the kernel remembers logged pods for some seconds.
var kernelFilled = regexp.MustCompile(`(?s)\tset \w+ \{[^{}]*flags dynamic[^{}]*(?:\{[^{}]*\}[^{}]*)?\}`)

func holdsAddr(text, addr string) bool {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,{}\n\t", r) }) {
		if word == addr {
			return true
		}
	}
	return false
}

// marked tells whether a line of conntrack says that the connection is admitted:
// bit 0x40 of its mark.
func marked(line string) bool {
	_, after, found := strings.Cut(line, " mark=")
	var mark uint32
	if found {
		fmt.Sscanf(after, "%d", &mark)
	}
	return mark&0x40 != 0
}
