package cli

import (
	"errors"
	"io"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/console/suggest"
)

// forNodes is `namegate suggest --nodes`: one policy for what nodes themselves need.
type forNodes struct {
	on    bool
	needs *suggest.NodeNeeds
}

func (f *forNodes) add(fl *pflag.FlagSet) {
	f.needs = suggest.NewNodeNeeds()
	fl.BoolVar(&f.on, "nodes", false, "write one ClusterFQDNNetworkPolicy, with enforcement: Audit, for what the nodes themselves dialled")
}

// prepare checks the flags, and makes the question one about all nodes.
func (f *forNodes) prepare(s *suggesting) error {
	switch {
	case !f.on:
		return nil
	case s.cluster.on:
		return errors.New("--cluster and --nodes write different policies; write one of them")
	case s.pod != "" || s.ask.reach.namespace != "":
		return errors.New("--nodes is about no pods; leave --pod and --namespace out")
	case s.o.Fold > 0 || s.unused != "" || s.o.EveryProtocol:
		return errors.New("--fold, --unused and --every-protocol are for policies of namespaces; leave them out, or --nodes")
	}
	s.ask.reach.cluster.all = s.ask.reach.cluster.on
	return nil
}

// suggestNodes writes the policy.
func (s *suggesting) suggestNodes(out io.Writer) (whole bool, err error) {
	suggestion := s.nodes.needs.Suggest()
	for _, l := range suggestion.Left {
		s.say("left out: %s", l)
	}
	return s.writeOne(suggestion, len(suggestion.Left) == 0, out)
}
