// Image packs root file systems and agents into container images, without a container
// runtime or a registry. The same content gives the same image.
//
//	image -tag REFERENCE -version VERSION -o TARBALL ARCHITECTURE,FOLDER,FILE…
//
// An argument is an architecture, its root file system and its agent, a static program.
// One makes a tarball as `docker save` writes it, or with -layout, and for several, a
// tarball of an OCI image layout with an index of all of them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// agentPath is where the image has the agent.
const agentPath = "/usr/local/bin/namegate"

func main() {
	tag := flag.String("tag", "", "the image's reference")
	version := flag.String("version", "dev", "the agent's version")
	out := flag.String("o", "", "the tarball to write")
	oci := flag.Bool("layout", false, "write an OCI image layout also of one architecture")
	flag.Parse()
	if err := run(flag.Args(), *tag, *version, *out, *oci || flag.NArg() > 1); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, tag, version, out string, oci bool) error {
	if len(args) == 0 || out == "" {
		return errors.New("write -o and an ARCHITECTURE,FOLDER,FILE")
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	var images []v1.Image
	for _, arg := range args {
		parts := strings.Split(arg, ",")
		if len(parts) != 3 {
			return fmt.Errorf("%q is no ARCHITECTURE,FOLDER,FILE", arg)
		}
		img, err := build(parts[0], parts[1], parts[2], version)
		if err != nil {
			return fmt.Errorf("image for %s: %w", parts[0], err)
		}
		images = append(images, img)
	}
	if oci {
		err = writeLayout(out, ref, images)
	} else {
		err = tarball.WriteToFile(out, ref, images[0])
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return nil
}

// build makes the image of an architecture: a layer of the root file system, and one of
// the agent, so that a new agent is all that a node has to fetch.
func build(arch, root, agent, version string) (v1.Image, error) {
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
	c.OS, c.Architecture = "linux", arch
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
