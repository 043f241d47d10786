package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/manifest"
	"github.com/namegate/namegate/proxy"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// status is the answer of the agent to `namegate status`.
type status struct {
	Version  string               `json:"version"`
	InSync   bool                 `json:"inSync"`
	Snapshot uint64               `json:"snapshot"`
	Failing  string               `json:"failing,omitempty"`
	Files    []manifest.FileError `json:"brokenFiles,omitempty"`
	Problems []policy.Problem     `json:"problems,omitempty"`
	// Away is set while the API server is: what was known before is in force.
	Away *away `json:"apiServerAway,omitempty"`
	// Paths are the selected pods whose queries do not reach the agent.
	Paths    []failedPath    `json:"failedPaths,omitempty"`
	Enforcer enforcer.Status `json:"enforcer"`
	Proxy    proxy.Stats     `json:"proxy"`
	Audit    *auditStatus    `json:"audit,omitempty"`
}

type away struct {
	Since time.Time `json:"since"`
	Error string    `json:"error"`
}

type failedPath struct {
	Pod  string `json:"pod"`
	Path string `json:"path"`
}

type auditStatus struct {
	Written uint64 `json:"written"`
	Dropped uint64 `json:"dropped"`
}

func (a *agent) status() any { return a.snapshotStatus() }

func (a *agent) snapshotStatus() status {
	r := a.rollout
	r.mu.Lock()
	s := status{
		Version: version, InSync: r.inForce != nil && r.failing == "", Snapshot: r.number(), Failing: r.failing,
		Files: r.state.files, Problems: r.problems,
	}
	r.mu.Unlock()
	s.Enforcer, s.Proxy = a.enforce.Status(), a.proxy.Stats()
	if a.cluster != nil {
		if h := a.cluster.source.Health(); !h.Disconnected.IsZero() {
			s.Away = &away{h.Disconnected, h.LastError}
		}
	}
	for pod, path := range a.paths.failed() {
		s.Paths = append(s.Paths, failedPath{pod.String(), path.String()})
	}
	slices.SortFunc(s.Paths, func(a, b failedPath) int { return strings.Compare(a.Pod, b.Pod) })
	if a.audit != nil {
		s.Audit = &auditStatus{a.audit.Written(), a.audit.Dropped()}
	}
	return s
}

func statusCommand() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the agent of this node does and what is wrong",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := get(cmd.Context(), socket, "/v1/status")
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := cmd.OutOrStdout().Write(body)
				return err
			}
			if output != "" {
				return fmt.Errorf("-o %s is not known; write -o json or leave it out", output)
			}
			var s status
			if err := json.Unmarshal(body, &s); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			return s.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	return cmd
}

func (s status) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "version\t%s\n", s.Version)
	fmt.Fprintf(t, "in sync\t%v (snapshot %d)\n", s.InSync, s.Snapshot)
	if s.Failing != "" {
		fmt.Fprintf(t, "failing\t%s\n", s.Failing)
	}
	fmt.Fprintf(t, "selected pods\t%d\n", s.Enforcer.Selected)
	fmt.Fprintf(t, "granted addresses\t%d\n", s.Enforcer.Grants)
	for dialled, serving := range s.Enforcer.Serving {
		fmt.Fprintf(t, "serves\t%s on %s\n", dialled, serving)
	}
	for _, a := range s.Enforcer.Homeless {
		fmt.Fprintf(t, "no home\t%s: no interface of this node leads to it, its source is not checked\n", a)
	}
	for _, a := range s.Enforcer.Unseen {
		fmt.Fprintf(t, "half enforced\t%s: netfilter does not see its bridge, nothing is denied between its pods; load br_netfilter and set net.bridge.bridge-nf-call-iptables=1 and bridge-nf-call-ip6tables=1\n", a)
	}
	if s.Away != nil {
		fmt.Fprintf(t, "API server\taway since %s, what was known then is in force: %s\n", s.Away.Since.Format(time.RFC3339), s.Away.Error)
	}
	for _, p := range s.Paths {
		fmt.Fprintf(t, "queries lost\tthose of %s do not reach the agent: %s\n", p.Pod, p.Path)
	}
	for _, f := range s.Files {
		fmt.Fprintf(t, "broken file\t%s: %s (since %s; its last good content is in force)\n", f.File, f.Reason, f.Since.Format(time.RFC3339))
	}
	for _, p := range s.Problems {
		fmt.Fprintf(t, "problem\t%s: %s: %s %s\n", p.Object, p.Reason, p.Path, p.Message)
	}
	p := s.Proxy
	fmt.Fprintf(t, "answers\t%d kept, %d asked for, %d stale\n", p.CacheHits, p.CacheMisses, p.CacheStale)
	if p.Prefetches > 0 {
		fmt.Fprintf(t, "prefetches\t%d\n", p.Prefetches)
	}
	if p.Followed > 0 {
		fmt.Fprintf(t, "followed\t%d questions for names that allowed ones point at\n", p.Followed)
	}
	if n := p.ShedPod + p.ShedAll + p.ShedZone; n > 0 {
		fmt.Fprintf(t, "too many\t%d queries got SERVFAIL: %d of one pod under way, %d of all, %d of one forward (max_concurrent)\n", n, p.ShedPod, p.ShedAll, p.ShedZone)
	}
	if s.Audit != nil {
		fmt.Fprintf(t, "audit lines\t%d written, %d dropped\n", s.Audit.Written, s.Audit.Dropped)
	}
	return t.Flush()
}

// get asks the agent over its socket.
func get(ctx context.Context, socket, path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("no agent at socket %s; is it running on this node? (--socket names another)", socket)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("socket %s is root's; run this as root", socket)
	case err != nil:
		return nil, fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
