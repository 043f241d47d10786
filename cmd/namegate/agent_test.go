package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/namegate/namegate/agent"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestClusterFlags(t *testing.T) {
	whole := clusterFlags{Cluster: agent.Cluster{Namespace: "namegate", PodName: "agent-1", DaemonSet: "agents"}, watchNodes: true}
	for name, c := range map[string]struct {
		change func(*clusterFlags)
		node   string
		want   string // a part of the error, "" for none
	}{
		"whole":        {func(*clusterFlags) {}, "n1", ""},
		"no node":      {func(*clusterFlags) {}, "", "--node-name"},
		"no namespace": {func(f *clusterFlags) { f.Namespace = "" }, "n1", "--namespace"},
		"no DaemonSet": {func(f *clusterFlags) { f.DaemonSet = "" }, "n1", "--daemonset"},
		"own Node":     {func(f *clusterFlags) { f.watchNodes = false }, "n1", ""},
		"standard":     {func(f *clusterFlags) { f.ClusterNetworkPolicies = true }, "n1", ""},
		"Node peers":   {func(f *clusterFlags) { f.ClusterNetworkPolicies, f.watchNodes = true, false }, "n1", "leave out --watch-nodes=false, or --cluster-network-policy"},
	} {
		f := whole
		c.change(&f)
		o, err := f.options(c.node, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && o.OwnNodeOnly == f.watchNodes {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestConsoleAddr(t *testing.T) {
	for _, c := range []struct {
		text    []string
		cluster bool
		want    string
	}{
		{nil, false, ""},
		{[]string{"192.0.2.1:9954"}, true, "192.0.2.1:9954"},
		{[]string{"[192.0.2.1]:9954", "[2001:db8::1]:1", "127.0.0.1:2"}, true, "192.0.2.1:9954 [2001:db8::1]:1 127.0.0.1:2"},
		{[]string{"192.0.2.1"}, true, `! --console-addr "192.0.2.1" is not an address and a port; write for example 192.0.2.1:9954 or [2001:db8::1]:9954`},
		{[]string{"node-a:9954"}, true, `! --console-addr "node-a:9954" is not`},
		{[]string{"192.0.2.1:99540"}, true, `! --console-addr "192.0.2.1:99540" is not`},
		{[]string{"192.0.2.1:9954"}, false, "! --console-addr needs --source kube"},
	} {
		f := listenFlags{addresses: c.text}
		got, err := f.parse(c.cluster)
		var words []string
		for _, a := range got {
			words = append(words, a.String())
		}
		text := strings.Join(words, " ")
		if err != nil {
			text = "! " + err.Error()
		}
		if text != c.want && (err == nil || !strings.HasPrefix(text, c.want)) {
			t.Errorf("%q: %s, want %s", c.text, text, c.want)
		}
	}
}

func TestProfilesNeedAListener(t *testing.T) {
	for o, bad := range map[*agent.Options]bool{
		{}: false, {Profiles: true}: true, {MetricsAddr: "127.0.0.1:9953"}: false, {Profiles: true, MetricsAddr: "127.0.0.1:9953"}: false,
	} {
		f := agentFlags{Options: *o, source: "dir:/policies", newPods: hold}
		_, err := f.options()
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "--metrics-addr") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if f := agentCommand().Flags().Lookup("pprof"); f == nil || f.DefValue != "false" {
		t.Errorf("--pprof is %+v", f)
	}
}

// TestAgentFlags: the flags set the options.
func TestAgentFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // a part of the error, "" for none
	}{
		{"--source dir:/policies", ""},
		{"--source dir:/policies --new-pods Open --pod-range 10.244.1.7/24,2001:db8::/64", ""},
		{"", `--source "" is not known; write --source kube or --source dir:PATH`},
		{"--source dir:", `--source "dir:" is not known`},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --console-addr 192.0.2.1:9954", ""},
		{"--source kube --node-name n1", "--source kube needs --"},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --nodes --resolv-conf /host/resolv.conf --console-addr 192.0.2.1:9954", ""},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --watch-nodes=false --console-addr 192.0.2.1:9954", ""},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --nodes --watch-nodes=false", "leave out --watch-nodes=false, or --nodes"},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --cluster-network-policy --watch-nodes=false", "leave out --watch-nodes=false, or --cluster-network-policy"},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --enforce-network-policies --console-addr 192.0.2.1:9954", ""},
		{"--source kube --node-name n1 --namespace a --pod-name b --daemonset c --enforce-network-policies --watch-nodes=false", "leave out --watch-nodes=false, or --enforce-network-policies"},
		{"--source dir:/policies --enforce-network-policies", ""},
		{"--source dir:/policies --nodes", "--nodes needs the name of this node"},
		{"--source dir:/policies --nodes --node-name n1", ""},
		{"--source dir:/policies --console-addr 192.0.2.1:9954", "--console-addr needs --source kube"},
		{"--source dir:/policies --new-pods open", `--new-pods "open" is not known; write Hold or Open`},
		{"--source dir:/policies --pod-range 10.244.1.0", `--pod-range "10.244.1.0" is not a range`},
	} {
		f := agentFlags{}
		fl := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(fl)
		fatal.If(t, fl.Parse(strings.Fields(c.args)))
		o, err := f.options()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
		if err != nil {
			continue
		}
		if got := o.Park; got != (f.newPods == hold) || len(o.PodRanges) != len(f.podRanges) || o.Version != version || o.Socket != defaultSocket {
			t.Errorf("%s: %+v", c.args, o)
		}
		own := strings.Contains(c.args, "--watch-nodes=false")
		if c := o.Cluster; (c != nil) != (f.source == "kube") || c != nil && (len(c.ConsoleAddrs) != 1 || c.OwnNodeOnly != own) || c == nil && o.Manifests != "/policies" {
			t.Errorf("%+v", o)
		}
	}
}
