package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"runtime"
	"strings"
)

// The media types of an image, as the OCI image specification has them.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// registry serves one image under every name and tag, as the OCI distribution specification
// has it. It can only be read.
type registry struct {
	manifest string
	blobs    map[string][]byte // by digest
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// newRegistry makes an image of one file.
func newRegistry() (*registry, error) {
	var plain, packed bytes.Buffer
	w := tar.NewWriter(&plain)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","rootfs":{"type":"layers","diff_ids":[%q]}}`, runtime.GOARCH, digestOf(plain.Bytes()))
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
		manifestType, configType, digestOf(config), len(config), layerType, digestOf(packed.Bytes()), packed.Len())
	return &registry{string(manifest), map[string][]byte{digestOf(config): config, digestOf(packed.Bytes()): packed.Bytes()}}, nil
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	switch blob, known := r.blobs[at]; {
	case req.URL.Path == "/v2/":
	case strings.Contains(req.URL.Path, "/manifests/"):
		w.Header().Set("Content-Type", manifestType)
		w.Header().Set("Docker-Content-Digest", digestOf([]byte(r.manifest)))
		w.Header().Set("Content-Length", fmt.Sprint(len(r.manifest)))
		fmt.Fprint(w, r.manifest)
	case known && strings.Contains(req.URL.Path, "/blobs/"):
		w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
		_, _ = w.Write(blob) // the client sees what is missing
	default:
		http.NotFound(w, req)
	}
}
