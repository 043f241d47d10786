package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
)

// suggesting is one call of `namegate suggest`.
type suggesting struct {
	ask    asking // whom, where no file is named
	pod    string
	since  string
	during time.Duration
	unused string
	output string
	o      suggest.Options
	one    ofCluster

	now    func() time.Time
	filter console.AuditFilter // which lines count

	lines  logLines
	log    *suggest.Log
	broken error // what could not be read to its end
}

func newSuggesting() *suggesting {
	s := &suggesting{now: time.Now, log: suggest.NewLog()}
	guard := defaultGuard()
	s.log.Guard = func(n fqdn.Name, a netip.Addr) string { return guard.Blocked(n, a, nil) }
	return s
}

// defaultGuard is the guard against rebinding of an unknown cluster.
func defaultGuard() *rebind.Guard {
	return rebind.New(corefile.Default(), rebind.Addresses{}).ForUnknown()
}

func suggestCommand(a asking) *cobra.Command {
	s := newSuggesting()
	s.ask = a
	cmd := &cobra.Command{
		Use:   "suggest [FILE|-]...",
		Short: "Write the smallest policies that allow the denied connections",
		Long: `Reads lines of the audit log from files, from the standard input (-), or, without
either, those that the agents still hold, and writes for each workload the least
FQDNNetworkPolicy that would have allowed what was denied and is not there yet. What
no policy can allow is named in comments and on the standard error, and the exit code
is 1. With --cluster it writes one ClusterFQDNNetworkPolicy that accepts the names
which many namespaces need, with --nodes one for what nodes themselves dialled.`,
		Example: `  namegate suggest /var/log/namegate/audit.log > policies.yaml
  namegate suggest -n shop --since 24h --fold 5
  grep -h '{"v":' agent-*.log | namegate suggest - -o json
  kubectl namegate suggest --nodes > nodes.yaml
  kubectl namegate suggest --cluster --min-namespaces 5 --tier Admin`,
		RunE: func(cmd *cobra.Command, files []string) error {
			s.lines.errs = cmd.ErrOrStderr()
			return s.run(cmd, files)
		},
	}
	s.ask.reach.add(cmd.Flags())
	fl := cmd.Flags()
	fl.StringVar(&s.pod, "pod", "", "only this pod: NAME or NAMESPACE/NAME")
	fl.StringVar(&s.since, "since", "", "only what was seen since: a duration such as 24h, or a time such as 2026-05-01T12:00:00Z")
	fl.DurationVar(&s.during, "for", 0, "follow the agents for so long before suggesting")
	fl.IntVar(&s.o.Fold, "fold", 0, "write *.PARENT where so many names of one parent, or more, were dialled on a port (0: never)")
	fl.BoolVar(&s.o.Deep, "deep", false, "with --fold: write **.DOMAIN for names at any depth below a registrable domain")
	fl.StringVar(&s.unused, "unused", "", "also allow names that were asked for and never dialled, on these ports, such as tcp/443 or any")
	fl.BoolVar(&s.o.EveryProtocol, "every-protocol", false, "allow ICMP and the like by rules that open every protocol and port of the name")
	fl.BoolVar(&s.o.ServerNames, "server-names", false, "write serverName: Require for names outside the cluster that were dialled on TCP 443 alone")
	s.one.add(cmd)
	fl.StringVarP(&s.output, "output", "o", "yaml", "yaml, or json for one List")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("pod", s.ask.completePod)
	_ = cmd.RegisterFlagCompletionFunc("namespace", s.ask.completeNamespaces)
	return cmd
}

func (s *suggesting) run(cmd *cobra.Command, files []string) error {
	if err := s.prepare(files); err != nil {
		return &console.Misused{Err: err}
	}
	var err error
	if len(files) > 0 {
		s.broken, err = eachLog(cmd, files, "or nothing to ask the agents", s.say, s.read)
	} else {
		err = s.live(cmd.Context())
	}
	if err != nil {
		return err
	}
	if len(files) == 0 && s.ask.reach.kube && !s.one.any() {
		s.networkPolicies(cmd.Context())
	}
	made, incomplete := s.suggest()
	for _, warning := range made.Warnings() {
		s.say("%s", warning)
	}
	if err := s.write(cmd.OutOrStdout(), made); err != nil {
		return err
	}
	switch {
	case s.broken != nil:
		return s.broken
	case s.lines.bad > 0:
		return leftLines(s.lines.bad)
	case s.lines.lost > 0:
		return fmt.Errorf("%d lines are missing, and what they would have said; ask for one namespace, or read the log itself", s.lines.lost)
	case !made.Whole():
		return errors.New(incomplete + "; see what is left out")
	}
	return nil
}

func leftLines(n int) error {
	if n == 1 {
		return errors.New("1 line was left out, since it is no line of the audit log; all others count")
	}
	return fmt.Errorf("%d lines were left out, since they are no lines of the audit log; all others count", n)
}

// prepare reads the flags.
func (s *suggesting) prepare(files []string) error {
	switch s.output {
	case "yaml", "json":
	default:
		return fmt.Errorf("-o %s is not known; write -o yaml or -o json", s.output)
	}
	if s.o.Fold < 0 || s.o.Fold == 1 {
		return fmt.Errorf("--fold %d; write 2 or more, or 0 to fold nothing", s.o.Fold)
	}
	if s.o.Deep && s.o.Fold == 0 {
		return errors.New("--deep says how to fold; write --fold N too")
	}
	if s.during < 0 || s.during > 0 && len(files) > 0 {
		return errors.New("--for follows the agents; leave the files out, and write a positive duration")
	}
	if err := s.one.prepare(s); err != nil {
		return err
	}
	var err error
	if s.o.Unused, err = policy.ParsePortSet(s.unused); err != nil {
		return fmt.Errorf("--unused: %w", err)
	}
	s.filter.Namespace = s.ask.reach.namespace
	if s.pod != "" {
		if s.filter.Namespace, s.filter.Pod, err = console.PodName(s.filter.Namespace, s.pod); err != nil {
			return fmt.Errorf("--pod: %w", err)
		}
	}
	s.filter.Since, err = beginning(s.since, s.now())
	return err
}

// beginning reads --since.
func beginning(since string, now time.Time) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, since); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(since)
	if err != nil || ago <= 0 {
		return time.Time{}, fmt.Errorf("--since %s; write a duration such as 24h, or a time such as 2026-05-01T12:00:00Z", since)
	}
	return now.Add(-ago), nil
}

// read takes all lines of a reader that count, as logLines does. Several readers may be read at
// once.
func (s *suggesting) read(name string, r io.Reader) error {
	return s.lines.read(name, r, func(line audit.Line) error {
		if !s.filter.Wants(&line) {
			return nil
		}
		return s.log.Add(line)
	})
}

func (s *suggesting) say(format string, args ...any) { s.lines.say(format, args...) }

// suggest makes the suggestion. incomplete says that it is not whole.
func (s *suggesting) suggest() (made suggest.Suggestion, incomplete string) {
	switch f := &s.one; {
	case f.nodes:
		return s.log.SuggestNodes(), "not every connection of nodes that was seen is in the policy"
	case f.cluster:
		return s.log.SuggestCluster(f.options()), "not every name that was needed is in the policy"
	}
	return s.log.Suggest(s.o), "not everything that was seen can be allowed by these policies as they are"
}

// write writes a suggestion in the form that the flags ask for.
func (s *suggesting) write(out io.Writer, made suggest.Suggestion) error {
	if s.output == "yaml" {
		return made.Write(out)
	}
	text, err := made.List()
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("write the suggestion: %w", err)
	}
	return nil
}
