package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// image is a container image of one static program.
type image struct {
	tag string
	// program is the file to take, path where the image has it.
	program, path string
	// links are further paths of the program.
	links []string
	args  []string
}

// write writes the image as a tarball of the form that `docker save` writes.
func (i image) write(to io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{i.path}, "Cmd": i.args, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.tag, err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{i.tag}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.tag, err)
	}
	w := tar.NewWriter(to)
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := addFile(w, f.name, 0o644, f.data); err != nil {
			return fmt.Errorf("make image %s: %w", i.tag, err)
		}
	}
	return w.Close()
}

// save writes the image to a file.
func (i image) save(tarball string) error {
	f, err := os.Create(filepath.Clean(tarball))
	if err != nil {
		return fmt.Errorf("write image %s: %w", i.tag, err)
	}
	return errors.Join(i.write(f), f.Close())
}

// LoadProgram gives every node an image of one static program, which starts by the first of
// its paths with args.
func (c *Cluster) LoadProgram(tag, program string, paths []string, args ...string) error {
	tarball := filepath.Join(imageDir, filepath.Base(program)+".tar")
	i := image{tag: tag, program: program, path: paths[0], links: paths[1:], args: args}
	if err := i.save(tarball); err != nil {
		return err
	}
	return c.Load(tarball)
}

func (i image) layer() ([]byte, error) {
	program, err := os.ReadFile(i.program)
	if err != nil {
		return nil, fmt.Errorf("make image %s: %w", i.tag, err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return nil, fmt.Errorf("make image %s: %w", i.tag, err)
	}
	if err := addFile(w, i.path[1:], 0o755, program); err != nil {
		return nil, fmt.Errorf("make image %s: %w", i.tag, err)
	}
	for _, link := range i.links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: link[1:], Linkname: i.path[1:], Mode: 0o755}); err != nil {
			return nil, fmt.Errorf("make image %s: %w", i.tag, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("make image %s: %w", i.tag, err)
	}
	return buf.Bytes(), nil
}

func addFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
