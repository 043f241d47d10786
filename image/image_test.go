package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// tree makes a small root file system with a program, a link and a folder that
// everyone may write.
func tree(t *testing.T) (root, agent string) {
	t.Helper()
	dir := t.TempDir()
	root, agent = filepath.Join(dir, "root"), filepath.Join(dir, "namegate")
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "usr/sbin"), 0o755),
		os.WriteFile(filepath.Join(root, "usr/sbin/nft"), []byte("a program"), 0o755),
		os.Symlink("usr/sbin", filepath.Join(root, "sbin")),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
		os.WriteFile(agent, []byte("the agent"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return root, agent
}

func TestImage(t *testing.T) {
	root, agent := tree(t)
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := run([]string{"amd64," + root + "," + agent}, "ghcr.io/namegate/namegate:v1", "v1", out, false); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Config.Entrypoint, []string{agentPath}) || c.Config.Labels["org.opencontainers.image.version"] != "v1" || c.OS != "linux" {
		t.Errorf("configuration %+v", c.Config)
	}
	for name, want := range map[string]tar.Header{
		"usr/sbin/nft":           {Typeflag: tar.TypeReg, Mode: 0o755, Size: 9},
		"sbin":                   {Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "usr/sbin"},
		"tmp/":                   {Typeflag: tar.TypeDir, Mode: 0o1777},
		"usr/local/bin/namegate": {Typeflag: tar.TypeReg, Mode: 0o755, Size: 9},
	} {
		h := find(t, img, name)
		if h == nil || h.Typeflag != want.Typeflag || h.Mode != want.Mode || h.Size != want.Size || h.Linkname != want.Linkname || h.Uid != 0 || !h.ModTime.IsZero() && h.ModTime.Unix() != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// TestLayout: the tarball of several architectures has one index, which names each with
// its platform, and is the same each time.
func TestLayout(t *testing.T) {
	root, agent := tree(t)
	args := []string{"amd64," + root + "," + agent, "arm64," + root + "," + agent}
	var texts [2][]byte
	for i := range texts {
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := run(args, "ghcr.io/namegate/namegate:v1", "v1", out, true); err != nil {
			t.Fatal(err)
		}
		var err error
		if texts[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two tarballs of the same content differ")
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-C", dir, "-xf", writeTemp(t, texts[0])).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 || m.Manifests[0].Annotations["io.containerd.image.name"] != "ghcr.io/namegate/namegate:v1" {
		t.Fatalf("index.json lists %+v", m.Manifests)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if m, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range m.Manifests {
		platforms = append(platforms, d.Platform.String())
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %v", platforms)
	}
}

func writeTemp(t *testing.T, text []byte) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// find returns an entry of an image's layers.
func find(t *testing.T, img v1.Image, name string) *tar.Header {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		text, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(text); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Name == name {
				return h
			}
		}
	}
	return nil
}

// TestSameContentSameImage: times and order of the files on disk leave no trace.
func TestSameContentSameImage(t *testing.T) {
	var digests []string
	for i := range 2 {
		root, agent := tree(t)
		if err := os.Chtimes(filepath.Join(root, "usr/sbin/nft"), time.Unix(int64(i), 0), time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		img, err := build("amd64", root, agent, "v1")
		if err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("two images of the same content: %v", digests)
	}
}

func TestRefusals(t *testing.T) {
	root, agent := tree(t)
	if err := run([]string{"amd64," + root + "," + agent}, "ghcr.io/namegate/namegate:not a tag", "v1", filepath.Join(t.TempDir(), "o"), false); err == nil || !strings.Contains(err.Error(), "-tag") {
		t.Errorf("a bad tag: %v", err)
	}
	for _, args := range [][]string{nil, {"amd64"}, {"amd64," + root}, {"amd64," + filepath.Join(root, "absent") + "," + agent}} {
		if err := run(args, "a:b", "v1", filepath.Join(t.TempDir(), "o"), false); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := build("amd64", root, agent, "v1"); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("a pipe in the root file system: %v", err)
	}
}
