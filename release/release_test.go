package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// built returns the folder and the version of a built release. `make release` gives both.
func built(t *testing.T) (dir, version string) {
	t.Helper()
	dir, version = os.Getenv("RELEASE"), os.Getenv("VERSION")
	if dir == "" {
		t.Skip("no release is built; run: make release")
	}
	return dir, version
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// unpack returns the files of a tarball, links with their target, and checks that no entry has a user.
func unpack(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			text = []byte(h.Linkname)
		}
		out[path.Clean(h.Name)] = text
	}
}

// unzip is unpack of a compressed tarball.
func unzip(t *testing.T, file string) map[string][]byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	if !r.ModTime.IsZero() {
		t.Errorf("%s: compressed at %s", file, r.ModTime)
	}
	return unpack(t, r)
}

// machine returns the operating system's format and the architecture of a program.
func machine(t *testing.T, text []byte) string {
	t.Helper()
	r := bytes.NewReader(text)
	if f, err := elf.NewFile(r); err == nil {
		return "linux " + map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
	}
	if f, err := macho.NewFile(r); err == nil {
		return "darwin " + map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[f.Cpu]
	}
	if f, err := pe.NewFile(r); err == nil {
		return "windows " + map[uint16]string{pe.IMAGE_FILE_MACHINE_AMD64: "amd64", pe.IMAGE_FILE_MACHINE_ARM64: "arm64"}[f.Machine]
	}
	return "no program"
}

// archives are the names of the compressed programs, with the program and its platform.
func archives(version string) map[string][3]string {
	out := map[string][3]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		out[fmt.Sprintf("namegate_%s_linux_%s.tar.gz", version, arch)] = [3]string{"namegate", "linux", arch}
		for _, system := range []string{"linux", "darwin", "windows"} {
			out[fmt.Sprintf("kubectl-namegate_%s_%s_%s.tar.gz", version, system, arch)] = [3]string{"kubectl-namegate", system, arch}
		}
	}
	return out
}

// TestFiles: the release has these files alone, none is empty, and SHA256SUMS has the
// digest of each other one.
func TestFiles(t *testing.T) {
	dir, version := built(t)
	number := strings.TrimPrefix(version, "v")
	want := slices.Sorted(maps.Keys(archives(version)))
	want = append(want, "SHA256SUMS", "namegate.yaml", "namegate-"+number+".tgz", "namegate-image_"+version+".tar", "namegate_"+version+".cdx.json")
	slices.Sort(want)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	sums := map[string]string{}
	for _, e := range entries {
		got = append(got, e.Name())
		text := read(t, filepath.Join(dir, e.Name()))
		if len(text) < 1000 || len(text) > 200<<20 {
			t.Errorf("%s has %d bytes", e.Name(), len(text))
		}
		if e.Name() != "SHA256SUMS" {
			sums[e.Name()] = sum(text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %q\nwant %q", got, want)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "SHA256SUMS")))) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = digest
	}
	if !maps.Equal(sums, listed) {
		t.Errorf("SHA256SUMS has %v, the files %v", listed, sums)
	}
}

// checkLicences checks that the files have Namegate's licence, those of Go and of the page's
// packages, and one of each module that the linker wrote into the program.
func checkLicences(t *testing.T, name string, files map[string][]byte, program []byte) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for _, file := range []string{"LICENSE", "licenses/go/LICENSE", "licenses/npm/lit-html/LICENSE"} {
		if len(files[file]) == 0 {
			t.Errorf("%s has no %s", name, file)
		}
	}
	licence := regexp.MustCompile(`(?i)^(LICEN[CS]E|COPYING)(\.\w+)?$`)
	for _, m := range info.Deps {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(file string) bool {
			return strings.HasPrefix(file, "licenses/"+m.Path+"/") && licence.MatchString(path.Base(file)) && len(files[file]) > 0
		}) {
			t.Errorf("%s has no licence of %s", name, m.Path)
		}
	}
	// Apache-2.0 asks for notices, MPL-2.0 for source code.
	for _, want := range []string{"licenses/gopkg.in/yaml.v3/NOTICE", "licenses/github.com/hashicorp/golang-lru/v2/internal/simplelru/lru.go"} {
		if len(files[want]) == 0 {
			t.Errorf("%s has no %s", name, want)
		}
	}
}

// TestPrograms: each archive has the licences and the program of its platform; programs of
// Linux need no library, and the ones of this machine tell the version of the release.
func TestPrograms(t *testing.T) {
	dir, version := built(t)
	for name, of := range archives(version) {
		files := unzip(t, filepath.Join(dir, name))
		program := of[0]
		if of[1] == "windows" {
			program += ".exe"
		}
		for file := range files {
			if file != program && file != "LICENSE" && file != "licenses" && !strings.HasPrefix(file, "licenses/") {
				t.Errorf("%s has the file %s", name, file)
			}
		}
		checkLicences(t, name, files, files[program])
		if got, want := machine(t, files[program]), of[1]+" "+of[2]; got != want {
			t.Errorf("%s: a program of %s", name, got)
		}
		if of[1] != "linux" {
			continue
		}
		if f, err := elf.NewFile(bytes.NewReader(files[program])); err != nil {
			t.Error(err)
		} else if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("%s needs %q (%v)", name, libraries, err)
		}
		if of[2] != runtime.GOARCH {
			continue
		}
		file := filepath.Join(t.TempDir(), program)
		if err := os.WriteFile(file, files[program], 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(file, "--version").CombinedOutput(); err != nil || !slices.Contains(strings.Fields(string(out)), version) {
			t.Errorf("%s --version: %q (%v)", program, out, err)
		}
	}
}

// TestImages: the tarball has one index of two images, each with the agent and the licences of
// the archive and Debian's nft of the same architecture.
func TestImages(t *testing.T) {
	dir, version := built(t)
	to := t.TempDir()
	if out, err := exec.Command("tar", "-C", to, "-xf", filepath.Join(dir, "namegate-image_"+version+".tar")).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	top, err := layout.ImageIndexFromPath(to)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("index.json lists %+v (%v)", m, err)
	}
	if got, want := m.Manifests[0].Annotations["org.opencontainers.image.ref.name"], strings.TrimPrefix(version, "v"); got != want {
		t.Errorf("tag %q, want %q", got, want)
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
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		files := unpackImage(t, img)
		for file, text := range unzip(t, filepath.Join(dir, fmt.Sprintf("namegate_%s_linux_%s.tar.gz", version, d.Platform.Architecture))) {
			at := "usr/share/doc/namegate/" + file
			if file == "namegate" {
				at = "usr/local/bin/namegate"
			}
			if !bytes.Equal(files[at], text) {
				t.Errorf("the image of %s has another %s than the archive", d.Platform, at)
			}
		}
		for _, program := range []string{"usr/sbin/nft", "usr/sbin/xtables-nft-multi"} {
			if got := machine(t, files[program]); got != "linux "+d.Platform.Architecture {
				t.Errorf("the image of %s has %s of %s", d.Platform, program, got)
			}
		}
		for file := range files {
			// Each Debian package has its licences, or a link to the folder of another package.
			dir, p := path.Split(file)
			if dir != "var/lib/dpkg/status.d/" {
				continue
			}
			doc := "usr/share/doc/" + p
			if link := files[doc]; len(link) > 0 {
				doc = path.Join("usr/share/doc", string(link))
			}
			if len(files[doc+"/copyright"]) == 0 {
				t.Errorf("the image of %s has no licence of %s", d.Platform, p)
			}
		}
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %v", platforms)
	}
}

func unpackImage(t *testing.T, img v1.Image) map[string][]byte {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	return unpack(t, r)
}

// TestChart: the version of the chart and of the image that it runs are the release's, and the
// chart has the licence.
func TestChart(t *testing.T) {
	dir, version := built(t)
	number := strings.TrimPrefix(version, "v")
	var chart struct{ Version, AppVersion string }
	files := unzip(t, filepath.Join(dir, "namegate-"+number+".tgz"))
	if err := yaml.Unmarshal(files["namegate/Chart.yaml"], &chart); err != nil {
		t.Fatal(err)
	}
	if len(files["namegate/LICENSE"]) == 0 {
		t.Error("the chart has no licence")
	}
	if chart.Version != number || chart.AppVersion != number {
		t.Errorf("version %q and appVersion %q, want %s", chart.Version, chart.AppVersion, number)
	}
}

// TestPlugin: the manifest of krew has the digest of the archive for each platform, and the
// name of the program in it.
func TestPlugin(t *testing.T) {
	dir, version := built(t)
	var plugin struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, ShortDescription, Description, Homepage, Caveats string
			Platforms                                                 []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(dir, "namegate.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	// The list of krew has the short text in a column.
	if plugin.Metadata.Name != "namegate" || plugin.Kind != "Plugin" || plugin.Spec.Version != version || plugin.Spec.ShortDescription == "" || len(plugin.Spec.ShortDescription) > 50 {
		t.Errorf("plugin %+v", plugin)
	}
	found := map[string]bool{}
	for _, p := range plugin.Spec.Platforms {
		l := p.Selector.MatchLabels
		name := fmt.Sprintf("kubectl-namegate_%s_%s_%s.tar.gz", version, l.OS, l.Arch)
		found[name] = true
		file := filepath.Join(dir, name)
		if p.URI != "https://github.com/namegate/namegate/releases/download/"+version+"/"+name || p.SHA256 != sum(read(t, file)) {
			t.Errorf("%s/%s: %s with %s", l.OS, l.Arch, p.URI, p.SHA256)
		}
		if len(unzip(t, file)[p.Bin]) == 0 {
			t.Errorf("%s has no %q", name, p.Bin)
		}
	}
	if len(found) != 6 {
		t.Errorf("platforms %v", found)
	}
}

// TestKrew: krew accepts the manifest, and installs the program and its licence for each platform.
func TestKrew(t *testing.T) {
	dir, version := built(t)
	manifest := filepath.Join(dir, "namegate.yaml")
	if out, err := exec.Command("go", "tool", "validate-krew-manifest", "-manifest", manifest, "-skip-install").CombinedOutput(); err != nil {
		t.Fatalf("validate-krew-manifest: %v\n%s", err, out)
	}
	for name, of := range archives(version) {
		if of[0] != "kubectl-namegate" {
			continue
		}
		root := t.TempDir()
		krew := exec.Command("go", "tool", "krew", "install", "--manifest="+manifest, "--archive="+filepath.Join(dir, name))
		krew.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_OS="+of[1], "KREW_ARCH="+of[2], "KREW_NO_UPGRADE_CHECK=1")
		if out, err := krew.CombinedOutput(); err != nil {
			t.Errorf("krew install %s: %v\n%s", name, err, out)
			continue
		}
		want := unzip(t, filepath.Join(dir, name))
		store := filepath.Join(root, "store/namegate", version)
		for file, text := range want {
			if len(text) > 0 && !bytes.Equal(read(t, filepath.Join(store, file)), text) {
				t.Errorf("krew installed another %s of %s", file, name)
			}
		}
	}
}

// TestComponents: each program and image is in the list with what it consists of.
func TestComponents(t *testing.T) {
	dir, version := built(t)
	f, err := os.Open(filepath.Join(dir, "namegate_"+version+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	needs := references(t, &bom)
	for name, of := range archives(version) {
		ref := strings.Join(of[:], "_")
		for _, library := range []string{"pkg:golang/k8s.io/client-go@v", "pkg:npm/lit-html@"} {
			if !slices.ContainsFunc(needs[ref], func(to string) bool { return strings.HasPrefix(to, library) }) {
				t.Errorf("%s: %s consists of %q", name, ref, needs[ref])
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, p := range []string{"nftables", "iptables", "libc6"} {
			if !slices.ContainsFunc(needs["image_linux_"+arch], func(to string) bool {
				return strings.HasPrefix(to, "pkg:deb/debian/"+p+"@") && strings.HasSuffix(to, "?arch="+arch)
			}) {
				t.Errorf("the image of %s consists of %q, without %s", arch, needs["image_linux_"+arch], p)
			}
		}
	}
}

// references returns the edges of a list, and checks that each end is in it.
func references(t *testing.T, bom *cdx.BOM) map[string][]string {
	t.Helper()
	known := map[string]bool{bom.Metadata.Component.BOMRef: true}
	for _, c := range *bom.Components {
		if known[c.BOMRef] {
			t.Errorf("%s is in the list twice", c.BOMRef)
		}
		known[c.BOMRef] = true
	}
	needs := map[string][]string{}
	for _, d := range *bom.Dependencies {
		needs[d.Ref] = *d.Dependencies
		for _, ref := range append([]string{d.Ref}, *d.Dependencies...) {
			if !known[ref] {
				t.Errorf("%s is not in the list", ref)
			}
		}
	}
	return needs
}
