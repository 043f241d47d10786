package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/short"
)

var (
	imageTar = flag.String("image", "../../bin/namegate-image.tar", "tarball of the agent's image, as `make image` writes it")
	imageTag = flag.String("tag", "dev", "tag of the image in it")
)

// nightly adds the parts of scenarios that the tests of a change leave out.
var nightly = short.Nightly()

const (
	imageName = "ghcr.io/namegate/namegate"
	release   = "namegate"
	namespace = "namegate-system"
	// soon bounds promises of less than a second, including kubectl's own time, on the
	// slowest machine.
	soon = time.Minute
	// patient bounds what has no promise: pods that start, roll-outs.
	patient = 5 * time.Minute
)

// the is the cluster of all scenarios.
var the *cluster.Cluster

// dataplanes are the dataplanes of the nodes.
var dataplanes = map[string]string{"node-a": "iptables", "node-b": "nftables"}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m, os.Getenv("KEEP") != "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run brings a cluster up, or uses a running one that may be kept, and runs the tests.
func run(m *testing.M, keep bool) (code int, err error) {
	begin := time.Now()
	if keep {
		the, _ = cluster.Attach()
	}
	if the == nil {
		if the, err = cluster.Up(context.Background()); err != nil {
			return 1, err
		}
	}
	fmt.Printf("the cluster stands after %v\n", time.Since(begin).Round(time.Second))
	defer func() {
		if code != 0 || err != nil {
			err = errors.Join(err, the.Dump())
			fmt.Fprintln(os.Stderr, "logs and the state of the cluster are in", the.LogFolder())
		}
		if keep {
			the.Leave()
			fmt.Fprintln(os.Stderr, "the cluster still stands: bin/cluster/stand kubectl …; make e2e-clean removes it")
			return
		}
		err = errors.Join(err, the.Down())
	}()
	// kubectl finds its command namegate.
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		err = os.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	}
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// install loads the image and installs the chart on tainted nodes, or upgrades the chart of a
// kept cluster, which was installed that way.
func install(ctx context.Context) error {
	tar, err := filepath.Abs(*imageTar)
	if err != nil {
		return err
	}
	for _, n := range the.Nodes {
		if err := n.Load(tar); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(tar)
	if err != nil {
		return err
	}
	// On a kept cluster an image of the same tag may be another.
	built = fmt.Sprintf("%x", sha256.Sum256(text))[:16]
	crd, err := clusterNetworkPolicyCRD()
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", crd},
		{"wait", "--for=condition=Established", "crd/clusternetworkpolicies.policy.networking.k8s.io"},
		{"taint", "nodes", "--all", "--overwrite", taint + "=:NoSchedule"},
	} {
		if _, err := the.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if err := enforceWith(ctx, dataplanes); err != nil {
		return err
	}
	_, err = the.Helm(ctx, helmArgs("upgrade", "--install")...)
	return err
}

// enforceWith writes the dataplane of each node, which the next agent of the node reads.
func enforceWith(ctx context.Context, dataplanes map[string]string) error {
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: dataplanes, namespace: " + namespace + "}\ndata:\n"
	for node, dataplane := range dataplanes {
		text += "  " + node + ": dataplane " + dataplane + "\n"
	}
	_, err := the.Kubectl(ctx, text, "apply", "-f", "-")
	return err
}

// built identifies the image that was loaded.
var built string

// helmArgs are the words of an install or upgrade that waits until every agent is ready.
func helmArgs(verb string, more ...string) []string {
	return append([]string{
		verb, release, "../../charts/namegate", "--namespace", namespace, "--wait", "--timeout", "300s",
		"--values", "testdata/values.yaml", "--set-string", "image.tag=" + *imageTag, "--set-string", "podAnnotations.built=b" + built,
	}, more...)
}

// diagnosis logs the state after a failed installation.
func diagnosis(ctx context.Context) string {
	var text strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"describe", "pods", "-n", namespace},
		{"logs", "-n", namespace, "-l", agentLabels, "--tail=50", "--prefix"},
		{"get", "events", "-n", namespace},
	} {
		out, err := the.Kubectl(ctx, "", args...)
		fmt.Fprintf(&text, "--- kubectl %s (%v)\n%s\n", strings.Join(args, " "), err, out)
	}
	return text.String()
}
