package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestList: a program of this module consists of Go, its one library and the listed npm package,
// an image of the packages whose control files it has.
func TestList(t *testing.T) {
	dir := t.TempDir()
	program, status := filepath.Join(dir, "sbom"), filepath.Join(dir, "root/var/lib/dpkg/status.d")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.MkdirAll(status, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"libgmp10": "Package: libgmp10\nVersion: 2:6.2.1+dfsg1-1.1\nArchitecture: arm64\nDescription: numbers\n more: text\n",
		"netbase":  "Package: netbase\nVersion: 6.4\nArchitecture: all\n",
	} {
		if err := os.WriteFile(filepath.Join(status, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	npm := filepath.Join(dir, "versions.txt")
	if err := os.WriteFile(npm, []byte("# a comment\nlit-html 3.3.3 BSD-3-Clause sha512-abc LICENSE lit-html.js\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	paths := []string{program, filepath.Join(dir, "root")}
	bom, err := list("v1.2.3", at, npm, paths)
	if err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" || bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("metadata %+v", bom.Metadata)
	}
	var image, own []string
	for _, d := range *bom.Dependencies {
		switch {
		case d.Ref == "image_linux_arm64":
			image = *d.Dependencies
		case strings.HasPrefix(d.Ref, "release_"):
			own = *d.Dependencies
		}
	}
	if want := []string{"namegate_linux_arm64", "pkg:deb/debian/libgmp10@2%3A6.2.1%2Bdfsg1-1.1?arch=arm64", "pkg:deb/debian/netbase@6.4?arch=all"}; !slices.Equal(image, want) {
		t.Errorf("the image consists of %q", image)
	}
	if len(own) != 3 || !strings.HasPrefix(own[0], "pkg:golang/github.com/CycloneDX/cyclonedx-go@v") || !strings.HasPrefix(own[1], "pkg:golang/std@1.") || own[2] != "pkg:npm/lit-html@3.3.3" {
		t.Errorf("the program consists of %q", own)
	}

	var texts [2][]byte
	for i := range texts {
		out := filepath.Join(dir, "list.json")
		if err := run("v1.2.3", at, npm, out, paths); err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two lists of the same content differ")
	}
}

// TestNoList: a folder without packages, a file that is no program, and a list of npm packages
// without their versions are refused.
func TestNoList(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, file, filepath.Join(dir, "absent")} {
		if _, err := list("v1.2.3", time.Time{}, os.DevNull, []string{p}); err == nil {
			t.Errorf("%s is listed", p)
		}
	}
	if _, err := list("v1.2.3", time.Time{}, file, nil); err == nil {
		t.Error("a list of npm packages without versions is read")
	}
}
