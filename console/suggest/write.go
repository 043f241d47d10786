package suggest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// Write writes the suggestion as manifests, each workload's below comments with the
// connections seen, notes, and connections left out. Manifests that must not be applied
// unchanged are in comments. Equal suggestions are equal text.
func (s Suggestion) Write(out io.Writer) error {
	var b bytes.Buffer
	if len(s.Workloads) == 0 {
		comment(&b, "Nothing was denied.")
	}
	for i, w := range s.Workloads {
		if i > 0 {
			b.WriteString("---\n")
		}
		if err := w.write(&b); err != nil {
			return err
		}
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the suggestion: %w", err)
	}
	return nil
}

// String names the workload.
func (w Workload) String() string {
	if w.Selector == "" {
		return w.Namespace + "/" + strings.Join(w.Pods, ", ")
	}
	return w.Namespace + ": pods with " + w.Selector
}

func (w Workload) write(b *bytes.Buffer) error {
	comment(b, w.String()+w.seen())
	for _, note := range w.Notes {
		comment(b, "Note: "+note)
	}
	for _, l := range w.Left {
		comment(b, "Left out: "+l.String())
	}
	if w.Selector == "" && len(w.Policies) > 0 {
		comment(b, "Nothing is suggested as it is: "+w.unlabelled())
	}
	for i, p := range w.Policies {
		text, err := YAML(p)
		if err != nil {
			return err
		}
		if w.Selector == "" {
			text = append([]byte("# "), bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n# "))...)
			text = append(text, '\n')
		}
		switch {
		case i > 0 && w.Selector == "":
			b.WriteString("# ---\n")
		case i > 0:
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	if len(w.NetworkPolicies) > 0 {
		text, err := NetworkYAML(w.NetworkPolicies...)
		if err != nil {
			return err
		}
		b.WriteString("---\n")
		comment(b, "If another engine enforces NetworkPolicies, it needs this beside the policies. Namegate ignores it.")
		b.Write(text)
	}
	return nil
}

// seen says how often and when connections were denied.
func (w Workload) seen() string {
	var parts []string
	if w.Denied > 0 {
		parts = append(parts, fmt.Sprintf("%d denied", w.Denied))
	}
	if w.WouldDeny > 0 {
		parts = append(parts, fmt.Sprintf("%d would-deny", w.WouldDeny))
	}
	if len(parts) == 0 {
		return "; no connection denied"
	}
	return fmt.Sprintf("; connections: %s; %s to %s", strings.Join(parts, ", "), w.First.UTC().Format(time.RFC3339), w.Last.UTC().Format(time.RFC3339))
}

// unlabelled says why the policies cannot be applied.
func (w Workload) unlabelled() string {
	return "no label of the pod says which pods are like it; give them one, write it in place of " + WriteSelector + ", and take the # away"
}

// Warnings says what of the suggestion needs somebody's hand, a line each.
func (s Suggestion) Warnings() []string {
	var lines []string
	for _, w := range s.Workloads {
		for _, l := range w.Left {
			lines = append(lines, plain(w.String()+": left out: "+l.String()))
		}
		if w.Selector == "" && len(w.Policies) > 0 {
			lines = append(lines, plain(w.String()+": "+w.unlabelled()))
		}
	}
	return lines
}

// comment writes one line of comment.
func comment(b io.StringWriter, text string) {
	_, _ = b.WriteString("# " + plain(text) + "\n") // a buffer takes all
}

// plain returns text without what could end a line or move a terminal's cursor: some
// of it is from logs, and so from pods.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
