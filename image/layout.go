package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// writeLayout writes a tarball of an OCI image layout that has one index, of images of
// different architectures. The two annotations are the names under which containerd and
// other programs import it.
func writeLayout(file string, ref name.Tag, images []v1.Image) error {
	var members []mutate.IndexAddendum
	for _, img := range images {
		c, err := img.ConfigFile()
		if err != nil {
			return fmt.Errorf("read the image's configuration: %w", err)
		}
		img = mutate.MediaType(mutate.ConfigMediaType(img, types.OCIConfigJSON), types.OCIManifestSchema1)
		members = append(members, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: c.OS, Architecture: c.Architecture}}})
	}
	index := mutate.IndexMediaType(mutate.AppendManifests(empty.Index, members...), types.OCIImageIndex)
	dir, err := os.MkdirTemp("", "namegate-layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(),
		"io.containerd.image.name":          ref.Name(),
	})
	if err := path.AppendIndex(index, names); err != nil {
		return err
	}
	return pack(file, dir)
}

// pack writes a folder as a tarball: sorted, root's, and without times.
func pack(file, dir string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	return errors.Join(addFolder(w, dir), w.Close(), out.Close())
}

// addFolder adds what is below a folder.
func addFolder(w *tar.Writer, root string) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil || rel == "." {
			return err
		}
		return add(w, filepath.ToSlash(rel), file, d)
	})
}
