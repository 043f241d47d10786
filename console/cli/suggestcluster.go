package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console/suggest"
	"github.com/namegate/namegate/crds/v1alpha1"
)

// ofCluster is `namegate suggest --cluster` and `--nodes`: one cluster policy, for what many namespaces
// or the nodes themselves need.
type ofCluster struct {
	cluster, nodes bool
	tier, subject  string
	least          int
}

// add adds the flags with their completions.
func (f *ofCluster) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.cluster, "cluster", false, "write one ClusterFQDNNetworkPolicy that accepts the names which many namespaces need")
	fl.StringVar(&f.tier, "tier", string(v1alpha1.TierBaseline), "with --cluster: Baseline or Admin")
	fl.IntVar(&f.least, "min-namespaces", 3, "with --cluster: accept names that so many namespaces need, or more")
	fl.StringVar(&f.subject, "subject", "seen", "with --cluster: select the namespaces that need a name (seen), or all")
	fl.BoolVar(&f.nodes, "nodes", false, "write one NodeNetworkPolicy, with enforcement: Audit, for what the nodes themselves dialled")
	tiers := []string{string(v1alpha1.TierBaseline), string(v1alpha1.TierAdmin)}
	_ = cmd.RegisterFlagCompletionFunc("tier", cobra.FixedCompletions(tiers, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("subject", cobra.FixedCompletions([]string{"seen", "all"}, cobra.ShellCompDirectiveNoFileComp))
}

// any tells whether one policy is asked for.
func (f *ofCluster) any() bool { return f.cluster || f.nodes }

// options returns what --cluster asks for.
func (f *ofCluster) options() suggest.ClusterOptions {
	return suggest.ClusterOptions{Tier: v1alpha1.Tier(f.tier), Namespaces: f.least, Everywhere: f.subject == "all"}
}

// prepare checks the flags, and makes the question one about all namespaces and nodes.
func (f *ofCluster) prepare(s *suggesting) error {
	flag, about := "--nodes", "no pods"
	if f.cluster {
		flag, about = "--cluster", "many namespaces"
	}
	switch {
	case f.cluster && f.nodes:
		return errors.New("--cluster and --nodes write different policies; write one of them")
	case !f.cluster && (f.tier != string(v1alpha1.TierBaseline) || f.least != 3 || f.subject != "seen"):
		return errors.New("--tier, --min-namespaces and --subject are for --cluster; write it too")
	case !f.any():
		return nil
	case f.tier != string(v1alpha1.TierBaseline) && f.tier != string(v1alpha1.TierAdmin):
		return fmt.Errorf("--tier %s is not known; write --tier Baseline or --tier Admin", f.tier)
	case f.subject != "seen" && f.subject != "all":
		return fmt.Errorf("--subject %s is not known; write --subject seen or --subject all", f.subject)
	case f.least < 1:
		return fmt.Errorf("--min-namespaces %d; write 1 or more", f.least)
	case s.pod != "" || s.ask.reach.namespace != "":
		return fmt.Errorf("%s is about %s; leave --pod and --namespace out", flag, about)
	case s.o.Fold > 0 || s.unused != "" || s.o.EveryProtocol || s.o.ServerNames:
		return fmt.Errorf("--fold, --unused, --every-protocol and --server-names are for policies of namespaces; leave them out, or %s", flag)
	}
	s.ask.reach.all = s.ask.reach.kube
	return nil
}
