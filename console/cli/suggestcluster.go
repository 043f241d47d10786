package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/crds/v1alpha1"
)

// forCluster is `namegate suggest --cluster`: one policy for what many namespaces need.
type forCluster struct {
	on            bool
	tier, subject string
	least         int
	needs         *suggest.ClusterNeeds
}

func (f *forCluster) add(fl *pflag.FlagSet) {
	f.needs = suggest.NewClusterNeeds()
	fl.BoolVar(&f.on, "cluster", false, "write one ClusterFQDNNetworkPolicy that accepts the names which many namespaces need")
	fl.StringVar(&f.tier, "tier", string(v1alpha1.TierBaseline), "with --cluster: Baseline or Admin")
	fl.IntVar(&f.least, "min-namespaces", 3, "with --cluster: accept names that so many namespaces need, or more")
	fl.StringVar(&f.subject, "subject", "seen", "with --cluster: select the namespaces that need a name (seen), or all")
}

// complete adds the completions of the flags.
func (f *forCluster) complete(cmd *cobra.Command) {
	tiers := []string{string(v1alpha1.TierBaseline), string(v1alpha1.TierAdmin)}
	_ = cmd.RegisterFlagCompletionFunc("tier", cobra.FixedCompletions(tiers, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("subject", cobra.FixedCompletions([]string{"seen", "all"}, cobra.ShellCompDirectiveNoFileComp))
}

// prepare checks the flags, and makes the question one about all namespaces.
func (f *forCluster) prepare(s *suggesting) error {
	if !f.on {
		if f.tier != string(v1alpha1.TierBaseline) || f.least != 3 || f.subject != "seen" {
			return errors.New("--tier, --min-namespaces and --subject are for --cluster; write it too")
		}
		return nil
	}
	switch {
	case f.tier != string(v1alpha1.TierBaseline) && f.tier != string(v1alpha1.TierAdmin):
		return fmt.Errorf("--tier %s is not known; write --tier Baseline or --tier Admin", f.tier)
	case f.subject != "seen" && f.subject != "all":
		return fmt.Errorf("--subject %s is not known; write --subject seen or --subject all", f.subject)
	case f.least < 1:
		return fmt.Errorf("--min-namespaces %d; write 1 or more", f.least)
	case s.pod != "" || s.ask.reach.namespace != "":
		return errors.New("--cluster is about many namespaces; leave --pod and --namespace out")
	case s.o.Fold > 0 || s.unused != "" || s.o.EveryProtocol:
		return errors.New("--fold, --unused and --every-protocol are for policies of namespaces; leave them out, or --cluster")
	}
	s.ask.reach.cluster.all = s.ask.reach.cluster.on
	return nil
}

// suggestCluster writes the policy.
func (s *suggesting) suggestCluster(out io.Writer) (whole bool, err error) {
	f := &s.cluster
	suggestion := f.needs.Suggest(suggest.ClusterOptions{Tier: v1alpha1.Tier(f.tier), Namespaces: f.least, Everywhere: f.subject == "all"})
	for _, warning := range suggestion.Warnings() {
		s.say("%s", warning)
	}
	return s.writeOne(suggestion, len(suggestion.Left) == 0, out)
}

// writeOne writes a suggestion of one policy in the form that the flags ask for.
func (s *suggesting) writeOne(suggestion interface {
	Write(io.Writer) error
	List() ([]byte, error)
}, whole bool, out io.Writer) (bool, error) {
	if s.output == "yaml" {
		return whole, suggestion.Write(out)
	}
	text, err := suggestion.List()
	if err != nil {
		return false, err
	}
	if _, err := out.Write(text); err != nil {
		return false, fmt.Errorf("write the suggestion: %w", err)
	}
	return whole, nil
}

// take takes a line for the policies of namespaces, or for the one of the cluster.
func (s *suggesting) take(line audit.Line) error {
	switch {
	case s.cluster.on:
		return s.cluster.needs.Add(line)
	case s.nodes.on:
		return s.nodes.needs.Add(line)
	}
	return s.log.Add(line)
}
