package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/e2e/cluster/probe"
	"github.com/namegate/namegate/testkit/fatal"
)

// judgedRow is a row of the table "Which connections are judged" in docs/nodes.md.
type judgedRow struct {
	from, to, by string
	judged       map[string]string // directions by traffic; with "¹", if a rule lists the ranges of pods and Services
}

// judgedRows reads the table.
func judgedRows(t *testing.T) (rows []judgedRow) {
	text, err := os.ReadFile("../../docs/nodes.md")
	fatal.If(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Which connections are judged\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 5 && cells[0] != "from" {
			rows = append(rows, judgedRow{cells[0], cells[1], cells[2], map[string]string{"Local": cells[3], "Forwarded": cells[4]}})
		}
	}
	if len(rows) < 15 {
		t.Fatalf("docs/nodes.md has %d rows", len(rows))
	}
	return rows
}

// outside is a client in the world.
var outside = []string{"203.0.113.7", "2001:db8::7"}

// ends are the places of the table, by their words, for a node and another one.
func ends(node, remote string) map[string]string {
	return map[string]string{
		"node": "host-" + node, "pod": "pod-" + node, "another pod": "second-" + node,
		"remote node": "host-" + remote, "remote pod": "pod-" + remote, "outside": outside[0],
	}
}

// judgedManifests are pods of every place, each with a Service.
func judgedManifests() (out []string) {
	for _, n := range nodes {
		for _, name := range []string{"host-" + n, "pod-" + n, "second-" + n} {
			p := pod(name, n, map[string]string{"app": name}, "serve", name, "8080")
			if strings.HasPrefix(name, "host-") {
				p = onHost(p)
			}
			out = append(out, p, nodePort(name))
		}
	}
	return out
}

// nodePort is a manifest of a Service of a pod, which nodes serve too.
func nodePort(app string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {type: NodePort, selector: {app: %[1]s}, ipFamilyPolicy: RequireDualStack, ports: [{port: 8080}]}\n", app)
}

// served are the addresses of the pods and the Services of a scenario.
type served struct {
	pods, services map[string][]string
	ports          map[string]int32 // of nodes, by Service
}

func (s *scenario) served() (out served) {
	s.Helper()
	var pods corev1.PodList
	var services corev1.ServiceList
	fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "pods", "-n", s.ns, "-o", "json")), &pods))
	fatal.If(s, json.Unmarshal([]byte(s.kubectl("get", "services", "-n", s.ns, "-o", "json")), &services))
	out = served{map[string][]string{}, map[string][]string{}, map[string]int32{}}
	for i := range pods.Items {
		for _, a := range pods.Items[i].Status.PodIPs {
			out.pods[pods.Items[i].Name] = append(out.pods[pods.Items[i].Name], a.IP)
		}
	}
	for i := range services.Items {
		v := &services.Items[i]
		out.services[v.Name], out.ports[v.Name] = v.Spec.ClusterIPs, v.Spec.Ports[0].NodePort
	}
	return out
}

// dialled returns what a row dials, over both families.
func (v *served) dialled(r judgedRow, node, remote string) (to []string) {
	backend := ends(node, remote)[strings.Replace(r.to, "itself", r.from, 1)]
	addresses, port := v.pods[backend], int32(8080)
	switch r.by {
	case "ClusterIP":
		addresses = v.services[backend]
	case "NodePort":
		addresses, port = v.pods["host-"+node], v.ports[backend]
	case "NodePort of the remote node":
		addresses, port = v.pods["host-"+remote], v.ports[backend]
	}
	for _, a := range addresses {
		to = append(to, net.JoinHostPort(a, fmt.Sprint(port)))
	}
	return to
}

// tried connects over TCP from a pod, a node, or an address of the world, and returns the outcome.
func (s *scenario) tried(from, to string) (probe.Class, error) {
	ctx, cancel := context.WithTimeout(s.ctx, probe.Patience)
	defer cancel()
	var c net.Conn
	var err error
	if a, no := netip.ParseAddr(from); no == nil {
		c, err = the.DialWorld(ctx, netip.AddrPortFrom(a, 0), netip.MustParseAddrPort(to))
	} else if n := the.Node(strings.TrimPrefix(from, "host-")); n != nil {
		c, err = n.Dial(ctx, "tcp", to)
	} else {
		var d probe.Dialled
		out, err := the.Inside(s.ctx, s.ref(from), "dial", "tcp", to) // whether kubectl exec works or not
		if err == nil {
			err = json.Unmarshal([]byte(out), &d)
		}
		return d.Class, err
	}
	if err != nil {
		return probe.Classify(err), nil
	}
	return probe.OK, c.Close()
}

// outcome tries a connection, and returns the error of another outcome.
func (s *scenario) outcome(from, to string, w want) error {
	got, err := s.tried(from, to)
	if err == nil && !w.has(got) {
		err = fmt.Errorf("%s to %s: %s, want %v", from, to, got, w)
	}
	return err
}

// closedTo is the outcome of connections that a policy denies, where it can answer and where not.
var closedTo = append(want{probe.Timeout}, denied...)

// atOnce runs functions at the same time and returns all of their errors.
func atOnce(tries []func() error) error {
	var g errgroup.Group
	g.SetLimit(16) // most of them wait
	errs := make([]error, len(tries))
	for i, try := range tries {
		g.Go(func() error {
			errs[i] = try()
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// outcomes tries every row over both families, and returns the errors of those that are not judged as told.
func (s *scenario) outcomes(rows []judgedRow, v *served, node, remote string, judged func(judgedRow) bool) error {
	var tries []func() error
	for _, r := range rows {
		w := works
		if judged(r) {
			w = closedTo
		}
		for family, to := range v.dialled(r, node, remote) {
			from := strings.Replace(ends(node, remote)[r.from], outside[0], outside[family], 1)
			tries = append(tries, func() error {
				if err := s.outcome(from, to, w); err != nil {
					return fmt.Errorf("%s to %s by %s: %w", r.from, r.to, r.by, err)
				}
				return nil
			})
		}
	}
	if len(tries) != 2*len(rows) {
		return fmt.Errorf("%d connections of %d rows", len(tries), len(rows))
	}
	return atOnce(tries)
}

// testJudged: of the table in docs/nodes.md, a node that denies a traffic in a direction denies the connections
// that the table says, and no others.
func testJudged(t *testing.T) {
	rows := judgedRows(t)
	s := begin(t, "judged")
	s.run(judgedManifests()...)
	v := s.served()
	none := func(judgedRow) bool { return false }
	const listed = `, networks: [10.77.0.0/24, "fd00:77::/64", 10.244.0.0/16, "fd00:244::/48", 10.96.0.0/16, "fd00:96::/112"]`
	for i, n := range nodes {
		remote := nodes[1-i]
		s.eventually(patient, "the Services", func() error { return s.outcomes(rows, &v, n, remote, none) })
		for _, c := range []struct{ traffic, direction, networks string }{
			{"Local", "ingress", ""},
			{"Local", "egress", listed},
			{"Local", "egress", ""},
			{"Forwarded", "ingress", ""},
			{"Forwarded", "egress", ""},
		} {
			s.administrate("judged", fmt.Sprintf("{nodeSelector: {matchLabels: {kubernetes.io/hostname: %s}}, priority: 1, traffic: %s, %s: [{action: Deny, ports: [{protocol: TCP, port: 8080}]%s}]}",
				n, c.traffic, c.direction, c.networks))
			s.eventually(soon, fmt.Sprint(n, ": ", c), func() error {
				return s.outcomes(rows, &v, n, remote, func(r judgedRow) bool {
					cell := r.judged[c.traffic]
					return strings.Contains(cell, c.direction) && (c.networks != "" || !strings.Contains(cell, "¹"))
				})
			})
		}
		s.kubectl("delete", "nnp", "judged")
	}
}
