package suggest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/console"
)

// Write writes the suggestion as manifests, each part's below comments with the
// connections seen, notes, and connections left out. Manifests that must not be applied
// unchanged are in comments. Equal suggestions are equal text.
func (s Suggestion) Write(out io.Writer) error {
	var b bytes.Buffer
	if len(s.Parts) == 0 {
		comment(&b, "Nothing was denied.")
	}
	for i := range s.Parts {
		if i > 0 {
			b.WriteString("---\n")
		}
		if err := s.Parts[i].write(&b); err != nil {
			return err
		}
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the suggestion: %w", err)
	}
	return nil
}

// String names the pods.
func (p *Part) String() string {
	if p.Selector == "" {
		return p.Namespace + "/" + strings.Join(p.Pods, ", ")
	}
	return p.Namespace + ": pods with " + p.Selector
}

// objects returns the policies.
func (p *Part) objects() (all []metav1.Object) {
	for i := range p.Policies {
		all = append(all, &p.Policies[i])
	}
	if p.NodePolicy != nil {
		all = append(all, p.NodePolicy)
	}
	if p.ClusterPolicy != nil {
		all = append(all, p.ClusterPolicy)
	}
	return all
}

func (p *Part) write(b *bytes.Buffer) error {
	comment(b, cmp.Or(p.head, p.String()+p.seen()))
	for _, note := range p.Notes {
		comment(b, "Note: "+note)
	}
	for _, l := range p.Left {
		comment(b, "Left out: "+l.String())
	}
	text, err := YAML(p.objects()...)
	if err != nil {
		return err
	}
	if why := p.unlabelled(); why != "" {
		comment(b, "Nothing is suggested as it is: "+why)
		for line := range bytes.Lines(text) {
			b.WriteString("# " + string(line))
		}
	} else {
		b.Write(text)
	}
	if len(p.NetworkPolicies) == 0 {
		return nil
	}
	if text, err = YAML(p.NetworkPolicies...); err != nil {
		return err
	}
	b.WriteString("---\n")
	comment(b, "If another engine enforces NetworkPolicies, it needs this beside the policies. Namegate ignores it.")
	b.Write(text)
	return nil
}

// seen says how often and when connections were denied.
func (p *Part) seen() string {
	var parts []string
	if p.Denied > 0 {
		parts = append(parts, fmt.Sprintf("%d denied", p.Denied))
	}
	if p.WouldDeny > 0 {
		parts = append(parts, fmt.Sprintf("%d would-deny", p.WouldDeny))
	}
	if len(parts) == 0 {
		return "; no connection denied"
	}
	return fmt.Sprintf("; connections: %s; %s to %s", strings.Join(parts, ", "), p.First.UTC().Format(time.RFC3339), p.Last.UTC().Format(time.RFC3339))
}

// unlabelled says why the policies cannot be applied, "" if they can.
func (p *Part) unlabelled() string {
	if p.Selector != "" || len(p.Policies) == 0 {
		return ""
	}
	return "no label of the pod says which pods are like it; give them one, write it in place of " + WriteSelector + ", and take the # away"
}

// Warnings says what of the suggestion needs somebody's hand, a line each.
func (s Suggestion) Warnings() []string {
	var lines []string
	for i := range s.Parts {
		p, of := &s.Parts[i], ""
		if p.head == "" {
			of = p.String() + ": "
		}
		for _, l := range p.Left {
			lines = append(lines, console.Safe(of+"left out: "+l.String()))
		}
		if why := p.unlabelled(); why != "" {
			lines = append(lines, console.Safe(of+why))
		}
	}
	return lines
}

// comment writes one line of comment.
func comment(b io.StringWriter, text string) {
	_, _ = b.WriteString("# " + console.Safe(text) + "\n") // a buffer takes all
}
