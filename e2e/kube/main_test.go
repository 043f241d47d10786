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
)

var (
	imageTar = flag.String("image", "../../bin/namegate-image.tar", "tarball of the agent's image, as `make image` writes it")
	imageTag = flag.String("tag", "dev", "tag of the image in it")
)

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

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m, os.Getenv("KEEP") != "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run brings a cluster up, or uses a running one that may be kept or is handed over,
// installs Namegate and runs the tests.
func run(m *testing.M, keep bool) (code int, err error) {
	ctx := context.Background()
	begin := time.Now()
	if keep || os.Getenv("HANDED_OVER") != "" {
		the, _ = cluster.Attach()
	}
	if the == nil {
		if the, err = cluster.Up(ctx); err != nil {
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
	if err := install(ctx); err != nil {
		return 1, errors.Join(err, errors.New(diagnosis(ctx)))
	}
	fmt.Printf("Namegate is installed after %v\n", time.Since(begin).Round(time.Second))
	return m.Run(), nil
}

// install loads the image and installs the chart, or upgrades the chart of a kept
// cluster.
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
	_, err = the.Helm(ctx, helmArgs("upgrade", "--install")...)
	return err
}

// built identifies the image that was loaded.
var built string

// helmArgs are the words of an install or upgrade that waits until every agent is ready.
func helmArgs(verb string, more ...string) []string {
	return append([]string{
		verb, release, "../../charts/namegate", "--namespace", namespace, "--create-namespace", "--wait", "--timeout", "300s",
		"--set", "image.repository=" + imageName, "--set", "image.tag=" + *imageTag, "--set", "image.pullPolicy=Never",
		"--set-string", "podAnnotations.built=b" + built,
		"--set", "cluster.ranges={10.244.0.0/16,fd00:244::/48,10.96.0.0/16,fd00:96::/112}",
		"--set", "corefile.grantTimeout=4s", // no answer fails on a busy machine
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
