package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

// What the agent says of itself, by the names that this package has for it.
type (
	agentStatus = console.Status
	away        = console.Away
	failedPath  = console.FailedPath
	auditStatus = console.AuditStatus
)

func (a *agent) snapshotStatus() agentStatus {
	r := a.rollout
	r.mu.Lock()
	s := agentStatus{
		Version: version, InSync: r.inForce != nil && r.failing == "", Snapshot: r.number(), Failing: r.failing, Waiting: r.waiting,
		Files: r.state.files, Problems: r.problems, NetworkPolicies: len(r.state.input.NetworkPolicies), RemotePods: len(r.state.input.Remote),
	}
	r.mu.Unlock()
	s.Enforcer, s.Proxy = a.enforce.Status(), a.proxy.Stats().Proxy
	s.InSync = s.InSync && len(s.Enforcer.Deviations) == 0
	if a.cluster != nil {
		if h := a.cluster.source.Health(); !h.Disconnected.IsZero() {
			s.Away = &away{Since: h.Disconnected, Error: h.LastError}
		}
	}
	for pod, path := range a.paths.failed() {
		s.Paths = append(s.Paths, failedPath{Pod: pod.String(), Path: path.String()})
	}
	slices.SortFunc(s.Paths, func(a, b failedPath) int { return strings.Compare(a.Pod, b.Pod) })
	if a.audit != nil {
		s.Audit = &auditStatus{Written: a.audit.Written(), Dropped: a.audit.Dropped()}
	}
	return s
}

func statusCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what agents do and what is wrong",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.printer(cmd)
			if err != nil {
				return err
			}
			agents, err := a.reach.everybody(cmd.Context())
			if err != nil {
				return err
			}
			replies, failed, err := console.Gather[agentStatus](cmd.Context(), agents, console.StatusPath, nil)
			if err != nil {
				return err
			}
			if err := p.Statuses(replies); err != nil {
				return err
			}
			return p.Failed(failed)
		},
	}
	a.add(cmd)
	return cmd
}
