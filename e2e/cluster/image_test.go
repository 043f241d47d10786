package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// unpack returns the files of a tarball by name.
func unpack(t *testing.T, r io.Reader) map[string]*bytes.Buffer {
	t.Helper()
	files := map[string]*bytes.Buffer{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		fatal.If(t, err)
		files[h.Name] = &bytes.Buffer{}
		if h.Typeflag == tar.TypeLink {
			if h.Linkname != "testpod" {
				t.Errorf("%s is a link to %s", h.Name, h.Linkname)
			}
			files[h.Name] = files[h.Linkname]
			continue
		}
		if _, err := io.Copy(files[h.Name], tr); err != nil {
			t.Fatal(err)
		}
		if h.Name == "testpod" && h.Mode != 0o755 {
			t.Errorf("the program has mode %o", h.Mode)
		}
	}
}

func TestImageIsComplete(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	fatal.If(t, os.WriteFile(program, []byte("the program"), 0o600))
	var buf bytes.Buffer
	fatal.If(t, (image{tag: "namegate.test/x:1", program: program, path: "/testpod", links: []string{"/bin/other"}, args: []string{"sleep"}}).write(&buf))
	files := unpack(t, &buf)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	fatal.If(t, json.Unmarshal(files["manifest.json"].Bytes(), &manifest))
	if len(manifest) != 1 || len(manifest[0].Layers) != 1 || manifest[0].RepoTags[0] != "namegate.test/x:1" {
		t.Fatalf("manifest %+v", manifest)
	}
	var config struct {
		OS     string `json:"os"`
		Config struct{ Entrypoint, Cmd []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	fatal.If(t, json.Unmarshal(files[manifest[0].Config].Bytes(), &config))
	layer := files[manifest[0].Layers[0]].Bytes()
	sum := sha256.Sum256(layer)
	if want := "sha256:" + hex.EncodeToString(sum[:]); config.Rootfs.DiffIDs[0] != want {
		t.Errorf("the configuration names layer %s, it is %s", config.Rootfs.DiffIDs[0], want)
	}
	if config.Config.Entrypoint[0] != "/testpod" || config.Config.Cmd[0] != "sleep" || config.OS != "linux" {
		t.Errorf("configuration %+v", config)
	}
	in := unpack(t, bytes.NewReader(layer))
	for _, path := range []string{"testpod", "bin/other"} {
		if got := in[path]; got == nil || got.String() != "the program" {
			t.Errorf("the program in the image at %s is %v", path, got)
		}
	}
}

func TestImageOfNothing(t *testing.T) {
	if err := (image{tag: "x", program: "/no/such/program", path: "/x"}).write(io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an image of a program that is not there: %v", err)
	}
}
