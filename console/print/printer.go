// Package print shows what agents answer: as tables and lines for people, and as JSON and YAML for programs.
package print

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
)

// The formats of output.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

// Formats are the words of -o.
func Formats() []string { return []string{FormatTable, FormatWide, FormatJSON, FormatYAML} }

// Printer prints answers.
type Printer struct {
	Out io.Writer
	// Warn takes warnings beside the answer.
	Warn   io.Writer
	Format string // of Formats
	Colour bool
	Now    func() time.Time
}

// CheckFormat is an error for an unknown format.
func CheckFormat(format string) error {
	if !slices.Contains(Formats(), format) {
		return &console.Misused{Err: fmt.Errorf("-o %s is not known; write %s", format, strings.Join(Formats(), ", "))}
	}
	return nil
}

// People tells whether a table is wanted, not something for programs.
func (p *Printer) People() bool { return p.Format == FormatTable || p.Format == FormatWide }

// Value prints something for programs.
func (p *Printer) Value(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	text = append(text, '\n')
	if p.Format == FormatYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	_, err = p.Out.Write(text)
	return err
}

// Warned warns of an agent.
func (p *Printer) Warned(f *console.Failure) {
	fmt.Fprintln(p.Warn, "namegate: "+console.Safe(f.Error()))
}

// Failed warns of agents that gave no answer, and returns the error with which the
// command ends, nil if there are none.
func (p *Printer) Failed(failed []*console.Failure) error {
	for _, f := range failed {
		p.Warned(f)
	}
	if len(failed) == 0 {
		return nil
	}
	return &console.Answered{Code: console.ExitCode(failed[0].Err)}
}
