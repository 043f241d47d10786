// Sbom lists the components of a release as CycloneDX JSON: the Go modules and npm packages of
// programs and the Debian packages of images. The same content gives the same list.
//
//	sbom -version VERSION -time SECONDS -npm LIST -o FILE PATH…
//
// A PATH is a program that Go built, or a folder with the root file system of an image. LIST is
// the file of the npm packages that each program embeds, such as page/vendor/versions.txt.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "the version of the release")
	seconds := flag.Int64("time", 0, "the time of the release, in seconds since 1970")
	npm := flag.String("npm", "", "the list of the npm packages in each program")
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	if err := run(*version, time.Unix(*seconds, 0), *npm, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(version string, at time.Time, npm, out string, paths []string) error {
	if version == "" || npm == "" || out == "" || len(paths) == 0 {
		return errors.New("write -version, -npm, -o and the programs and folders of the release")
	}
	bom, err := list(version, at, npm, paths)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	// Readers of this version are widespread.
	err = cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return nil
}
