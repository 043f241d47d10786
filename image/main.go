// Image packs a root file system and the agent into a container image, without a
// container runtime or a registry. The same content gives the same image.
//
//	image -root FOLDER -agent FILE -tag REFERENCE -version VERSION -o TARBALL
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// agentPath is where the image has the agent.
const agentPath = "/usr/local/bin/namegate"

func main() {
	root := flag.String("root", "", "root file system")
	agent := flag.String("agent", "", "the agent, a static program")
	tag := flag.String("tag", "", "the image's reference")
	version := flag.String("version", "dev", "the agent's version")
	out := flag.String("o", "", "the tarball to write")
	flag.Parse()
	if err := run(*root, *agent, *tag, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(root, agent, tag, version, out string) error {
	if root == "" || agent == "" || out == "" {
		return errors.New("write -root, -agent and -o")
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	img, err := build(root, agent, version)
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(out, ref, img); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return nil
}

// build makes the image: a layer of the root file system, and one of the agent, so
// that a new agent is all that a node has to fetch.
func build(root, agent, version string) (v1.Image, error) {
	base, err := folderLayer(root)
	if err != nil {
		return nil, err
	}
	own, err := fileLayer(agentPath, agent)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, base, own)
	if err != nil {
		return nil, fmt.Errorf("put the layers together: %w", err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config.Entrypoint = []string{agentPath}
	c.Config.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}
	c.Config.WorkingDir = "/"
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       "namegate",
		"org.opencontainers.image.description": "Node-local FQDN egress gateway for Kubernetes",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/namegate/namegate",
		"org.opencontainers.image.version":     version,
	}
	return mutate.ConfigFile(img, c)
}
