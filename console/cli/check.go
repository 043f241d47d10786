package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/explain"
)

// checking is one call of `namegate check`.
type checking struct {
	pod, labels, namespace string
	node                   string // labels
	ofLabels, ofNode       bool   // labels, node are given, if only as ""
	to, from, logs         []string
	enforce                string
	output                 string
	strict, deep           bool
	o                      check.Options
	questions              []explain.Target
	reach                  reach
}

func checkCommand(a asking) *cobra.Command {
	c := &checking{reach: a.reach}
	cmd := &cobra.Command{
		Use:   "check [PATH]...",
		Short: "Find mistakes in policies, in files or in a cluster",
		Long: `Reads manifests from files, folders and the standard input (-), and says what an
API server or an agent would refuse, what looks like a slip, and with --to whether a
pod may reach a name, with --from whether it may be reached: by the rules of the
source for egress, if that is a pod, and those of the pod for ingress. Without PATH,
kubectl namegate check reads the policies of a namespace, its pods and Services, and
the agents' audit log. With PATH and --kube it compares the manifests with the pods
and Services of the cluster. The exit code is 1 if there is an error, or with --strict
a warning, or if the answer is no. With --enforce it tries one Audit policy: which
connections that pass today it would deny if it enforced.`,
		Example: `  namegate check deploy/
  helm template shop | namegate check - --strict
  namegate check deploy/ --pod shop/cart --to www.example.org:443
  namegate check deploy/ -n shop --labels app=cart --to ns.example.org:53/udp
  namegate check deploy/ --pod shop/cart --to 8080 --from pay/till --from 192.0.2.10
  namegate check deploy/ --enforce shop/watch
  namegate check deploy/ --log /var/log/namegate/audit.log
  namegate check deploy/ --node role=edge --to registry.example.org:443
  kubectl namegate check -n shop
  kubectl namegate check -A
  kubectl namegate check deploy/ --kube`,
		RunE: func(cmd *cobra.Command, paths []string) error { return c.run(cmd, paths) },
	}
	fl := cmd.Flags()
	c.reach.addLogin(fl)
	fl.Lookup("kube").Usage = "read a cluster, as kubectl namegate check does without PATH"
	fl.StringVar(&c.pod, "pod", "", "the pod that asks, or with --from is reached, or the workload that makes it: NAME or NAMESPACE/NAME of the manifests")
	fl.StringVar(&c.labels, "labels", "", "labels of a pod that asks and is not in the manifests, such as app=cart,tier=front; \"\" for none")
	fl.StringVar(&c.node, "node", "", "labels of a node that connects itself, or with --from is reached, such as role=edge; \"\" for none")
	fl.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pod (default: default); in a cluster the namespace that is checked (default: that of the context)")
	fl.StringArrayVar(&c.to, "to", nil, "what it is to reach: NAME, NAME:PORT or NAME:PORT/PROTOCOL; with --from its own port: PORT, PORT/PROTOCOL or icmp; may be given more than once")
	fl.StringArrayVar(&c.from, "from", nil, "ask about connections to the pod or the node, on the port of --to: from a pod or workload NAME or NAMESPACE/NAME, an address or node/NODE; may be given more than once")
	fl.StringVar(&c.enforce, "enforce", "", "try one Audit policy as if it enforced: NAMESPACE/NAME, or NAME of a ClusterFQDNNetworkPolicy")
	fl.StringArrayVar(&c.logs, "log", nil, "compare the names with an audit log, - for the standard input: names that nothing resolved, and shared addresses; may be given more than once")
	fl.BoolVar(&c.strict, "strict", false, "exit with 1 for warnings too")
	fl.BoolVarP(&c.deep, "recursive", "R", false, "read the folders in folders too")
	fl.StringVarP(&c.output, "output", "o", "", "json or yaml; nothing for lines")
	fl.BoolVar(&c.o.EnforceNetworkPolicies, "enforce-network-policies", false, "the agents enforce NetworkPolicies in both directions for every pod, as with networkPolicy.enforce: All")
	fl.StringVar(&c.o.ClusterDomain, "cluster-domain", "cluster.local", "what names of the cluster end in")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *checking) run(cmd *cobra.Command, paths []string) error {
	c.ofLabels, c.ofNode = cmd.Flags().Changed("labels"), cmd.Flags().Changed("node")
	if err := c.prepareCluster(cmd, paths); err != nil {
		return &console.Misused{Err: err}
	}
	if err := c.prepare(paths); err != nil {
		return &console.Misused{Err: err}
	}
	m, err := check.Read(paths, interruptible(ctxOf(cmd), cmd.InOrStdin()), c.deep)
	if err != nil {
		return err
	}
	if c.reach.kube {
		if err := c.cluster(cmd, m); err != nil {
			return err
		}
	}
	pods, err := c.pods(m)
	if err != nil {
		return err
	}
	var trial *check.Trial
	if c.enforce != "" {
		if trial, err = m.Enforce(c.enforce, pods, c.questions, c.o); err != nil {
			return console.Refuse(http.StatusNotFound, "--enforce: %v", err)
		}
		pods = nil
	}
	answers, err := c.ask(m, pods)
	if err != nil {
		return err
	}
	broken, err := c.log(cmd, m)
	if err != nil {
		return err
	}
	report := m.Report(m.Lint(c.o), answers)
	report.Trial = trial
	if err := errors.Join(report.Write(cmd.OutOrStdout(), c.output), broken); err != nil {
		return err
	}
	if report.Bad(c.strict) || report.Denied() > 0 {
		return &console.Answered{Code: console.ExitNo}
	}
	return nil
}

// ask returns the answers to the questions about pods.
func (c *checking) ask(m *check.Manifests, pods []check.Pod) (answers []check.Answer, err error) {
	for _, pod := range pods {
		for _, q := range c.questions {
			if len(c.from) == 0 {
				answers = append(answers, m.Ask(pod, q, c.o))
			}
			for _, from := range c.o.From {
				if from.Name != "" { // a node has no namespace
					from.Namespace = cmp.Or(from.Namespace, c.namespace)
				}
				some, err := m.AskFrom(pod, from, q, c.o)
				if err != nil {
					return nil, fmt.Errorf("--from: %w", err)
				}
				answers = append(answers, some...)
			}
		}
	}
	return answers, nil
}

// log reads the audit logs. Lines that are none are left out, and said; broken is what could not
// be read to its end.
func (c *checking) log(cmd *cobra.Command, m *check.Manifests) (broken, err error) {
	if len(c.logs) == 0 {
		return nil, nil
	}
	c.o.Log = check.NewLog(m)
	lines := logLines{errs: cmd.ErrOrStderr()}
	broken, err = eachLog(cmd, c.logs, "or leave --log out", lines.say, func(name string, r io.Reader) error {
		return lines.read(name, r, func(line audit.Line) error {
			c.o.Log.Add(line)
			return nil
		})
	})
	if lines.bad > 0 {
		lines.say("%v", leftLines(lines.bad))
	}
	return broken, err
}

// prepare reads the flags.
func (c *checking) prepare(paths []string) error {
	asks := c.pod != "" || c.ofLabels || c.ofNode
	switch {
	case slices.Contains(paths, "-") && slices.Contains(c.logs, "-"):
		return errors.New("the standard input cannot be both manifests and a log; write the path of one of them")
	case c.output != "" && c.output != "json" && c.output != "yaml":
		return fmt.Errorf("-o %s is not known; write -o json, -o yaml, or leave it out", c.output)
	case c.pod != "" && c.ofLabels:
		return errors.New("--pod and --labels both say who asks; write one of them")
	case c.ofNode && (c.pod != "" || c.ofLabels || c.enforce != ""):
		return errors.New("--node says who asks, and goes with --to and --from alone; leave out --pod, --labels and --enforce")
	case len(c.from) > 0 && c.enforce != "":
		return errors.New("--from asks about connections to a pod or a node; leave out --enforce")
	case len(c.from) > 0 && (!asks || len(c.to) == 0):
		return errors.New("--from asks about a port of a pod or a node; write --pod, --labels or --node, and --to 8080, --to 53/udp or --to icmp")
	case c.enforce == "" && asks != (len(c.to) > 0):
		return errors.New("a question has a pod and a destination; write --to with --pod, --labels or --node")
	}
	for _, text := range c.from {
		from, err := explain.ParseFrom(text)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		c.o.From = append(c.o.From, from)
	}
	for _, text := range c.to {
		to, err := c.target(text)
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		c.questions = append(c.questions, to)
	}
	if namespace, name, found := strings.Cut(c.pod, "/"); found {
		if namespace == "" || name == "" || c.namespace != "" && c.namespace != namespace {
			return fmt.Errorf("--pod %s: write NAME, or NAMESPACE/NAME without another --namespace", c.pod)
		}
		c.namespace, c.pod = namespace, name
	}
	if c.namespace == "" && !c.reach.kube {
		c.namespace = "default"
	}
	c.o.ClusterDomain = strings.ToLower(strings.Trim(c.o.ClusterDomain, "."))
	return nil
}

// target reads what is to be reached: with --from a port of the pod.
func (c *checking) target(text string) (to explain.Target, err error) {
	if len(c.from) > 0 {
		if to, err = explain.ParsePort(text); err == nil && to.Port == 0 && !strings.Contains(strings.ToLower(text), "icmp") {
			err = fmt.Errorf("%q has no port, which --from asks about; write one, such as 53/udp", text)
		}
		return to, err
	}
	if to, err = explain.ParseTarget(text); err == nil && to.Addr.IsValid() {
		err = fmt.Errorf("%q is an address, and policies allow names: an address is open once an answer for an allowed name held it; write the name", text)
	}
	return to, err
}

// pods returns who asks.
func (c *checking) pods(m *check.Manifests) ([]check.Pod, error) {
	switch {
	case c.ofNode:
		node, err := check.NodeWith(c.node)
		return madeUp("--node", node, err)
	case c.ofLabels:
		pod, err := check.PodWith(c.namespace, c.labels)
		return madeUp("--labels", pod, err)
	case c.pod == "":
		return nil, nil
	}
	pods := m.PodsNamed(c.namespace, c.pod)
	if len(pods) == 0 {
		return nil, m.NoPod(c.namespace, c.pod, "its labels with --labels")
	}
	return pods, nil
}

// madeUp returns the pod or node of a flag.
func madeUp(flag string, pod check.Pod, err error) ([]check.Pod, error) {
	if err != nil {
		return nil, &console.Misused{Err: fmt.Errorf("%s %w", flag, err)}
	}
	return []check.Pod{pod}, nil
}
