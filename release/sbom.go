package main

import (
	"bufio"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// components is the list while it grows. A component of several programs is in it once.
type components struct {
	version string
	npm     []cdx.Component // what each program embeds
	found   map[string]cdx.Component
	needs   map[string][]string // the references of what a component contains
}

// list returns the components of the programs and of the images' folders. The file npm lists
// the npm packages of each program.
func list(version string, at time.Time, npm string, paths []string) (*cdx.BOM, error) {
	packages, err := embedded(npm)
	if err != nil {
		return nil, fmt.Errorf("read the npm packages of %s: %w", npm, err)
	}
	c := &components{version, packages, map[string]cdx.Component{}, map[string][]string{}}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			err = c.image(p)
		} else {
			err = c.program(p)
		}
		if err != nil {
			return nil, fmt.Errorf("list the components of %s: %w", p, err)
		}
	}
	whole := cdx.Component{
		BOMRef: "namegate", Type: cdx.ComponentTypeApplication, Name: "namegate", Version: version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: at.UTC().Format(time.RFC3339), Component: &whole}
	var all []cdx.Component
	for _, ref := range slices.Sorted(maps.Keys(c.found)) {
		all = append(all, c.found[ref])
		if _, top := c.needs[ref]; top {
			c.needs[whole.BOMRef] = append(c.needs[whole.BOMRef], ref)
		}
	}
	var edges []cdx.Dependency
	for _, ref := range slices.Sorted(maps.Keys(c.needs)) {
		slices.Sort(c.needs[ref])
		to := slices.Compact(c.needs[ref])
		edges = append(edges, cdx.Dependency{Ref: ref, Dependencies: &to})
	}
	bom.Components, bom.Dependencies = &all, &edges
	return bom, nil
}

// program adds a program and its Go modules, as the linker wrote them into it.
func (c *components) program(file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	name := path.Base(info.Path)
	ref := name + "_" + settings["GOOS"] + "_" + settings["GOARCH"]
	c.found[ref] = cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: name, Version: c.version, Description: "for " + settings["GOOS"] + "/" + settings["GOARCH"],
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	c.need(ref, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion}, "golang/std@"+strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c.need(ref, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version}, "golang/"+m.Path+"@"+url.QueryEscape(m.Version))
	}
	for _, p := range c.npm {
		c.need(ref, p, "npm/"+p.Name+"@"+p.Version)
	}
	return nil
}

// embedded reads a list of npm packages: a line has a name, a version, a licence and more.
func embedded(file string) ([]cdx.Component, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []cdx.Component
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 3 {
			return nil, fmt.Errorf("no name, version and licence in %q", line)
		}
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: words[0], Version: words[1],
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: words[2]}}},
		})
	}
	return out, nil
}

// image adds an image and its Debian packages, of which image/unpack wrote a file each.
func (c *components) image(root string) error {
	files, err := filepath.Glob(filepath.Join(root, "var/lib/dpkg/status.d/*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no file in var/lib/dpkg/status.d (%w)", err)
	}
	var packages []map[string]string
	var arch string
	for _, file := range files {
		p, err := fields(file)
		if err != nil {
			return err
		}
		if p["Architecture"] != "all" {
			arch = p["Architecture"]
		}
		packages = append(packages, p)
	}
	ref := "image_linux_" + arch
	c.found[ref] = cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeContainer, Name: "ghcr.io/namegate/namegate", Version: c.version, Description: "for linux/" + arch}
	c.needs[ref] = []string{"namegate_linux_" + arch}
	for _, p := range packages {
		c.need(ref, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: p["Package"], Version: p["Version"]},
			"deb/debian/"+p["Package"]+"@"+url.QueryEscape(p["Version"])+"?arch="+p["Architecture"])
	}
	return nil
}

// need adds a component that another one contains, by its package URL without the scheme.
func (c *components) need(ref string, of cdx.Component, purl string) {
	of.PackageURL = "pkg:" + purl
	of.BOMRef = of.PackageURL
	c.found[of.BOMRef] = of
	c.needs[ref] = append(c.needs[ref], of.BOMRef)
}

// fields reads the control file of a Debian package, without continued lines.
func fields(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), ": "); found && !strings.HasPrefix(name, " ") {
			out[name] = value
		}
	}
	return out, lines.Err()
}
