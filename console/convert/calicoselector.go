package convert

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calicoToken is one word of a selector of Calico.
var calicoToken = regexp.MustCompile(`^\s*(&&|\|\||==|!=|!|\(|\)|\{|\}|,|"[^"]*"|'[^']*'|[A-Za-z0-9_./-]+)`)

// calicoSelector reads an expression of Calico as label selectors of namespaces and of pods.
// Selectors of Kubernetes have no "or", and no parts of values.
type calicoSelector struct {
	rest             string
	ofNamespaces     bool // the expression is about namespaces
	namespaces, pods metav1.LabelSelector
}

// read adds the requirements of an expression.
func (s *calicoSelector) read(text string) error {
	s.rest = text
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if err := s.every(""); err != nil {
		return fmt.Errorf("selector %q: %w", text, err)
	}
	return nil
}

// every reads terms with && between them until end, "" for the end of the text.
func (s *calicoSelector) every(end string) error {
	for {
		if err := s.requirement(); err != nil {
			return err
		}
		switch token := s.next(); {
		case token == end && (end != "" || strings.TrimSpace(s.rest) == ""):
			return nil
		case token == "||":
			return fmt.Errorf("selectors here have no ||; write a policy for each side")
		case token != "&&":
			return fmt.Errorf("cannot read it from %q", token+s.rest)
		}
	}
}

// next takes the next token, "" at the end and where there is none.
func (s *calicoSelector) next() string {
	found := calicoToken.FindStringSubmatch(s.rest)
	if found == nil {
		return ""
	}
	s.rest = s.rest[len(found[0]):]
	return found[1]
}

// requirement reads one term: terms in parentheses, all(), has(k), !has(k), k == "v", k != "v", k in {…}, k not in {…}.
func (s *calicoSelector) requirement() error {
	operator, key := metav1.LabelSelectorOpExists, s.next()
	if key == "!" {
		operator, key = metav1.LabelSelectorOpDoesNotExist, s.next()
	}
	switch {
	case key == "(" && operator == metav1.LabelSelectorOpExists:
		return s.every(")")
	case key == "all" && operator == metav1.LabelSelectorOpExists:
		return s.expect("(", ")")
	case key == "has":
		if err := s.expect("("); err != nil {
			return err
		}
		if err := s.add(s.next(), operator); err != nil {
			return err
		}
		return s.expect(")")
	case operator == metav1.LabelSelectorOpDoesNotExist || key == "" || strings.ContainsAny(key, `(){}"'!=&|,`):
		return fmt.Errorf("only all(), has(LABEL), !has(LABEL), comparisons with ==, != and in {…}, && and parentheses have an equal")
	}
	switch word := s.next(); word {
	case "==":
		return s.add(key, metav1.LabelSelectorOpIn, s.next())
	case "!=":
		return s.add(key, metav1.LabelSelectorOpNotIn, s.next())
	case "in":
		return s.list(key, metav1.LabelSelectorOpIn)
	case "not":
		if err := s.expect("in"); err != nil {
			return err
		}
		return s.list(key, metav1.LabelSelectorOpNotIn)
	default:
		return fmt.Errorf("%q after %s has no equal", word, key)
	}
}

func (s *calicoSelector) expect(tokens ...string) error {
	for _, want := range tokens {
		if got := s.next(); got != want {
			return fmt.Errorf("%q where %q is expected", got, want)
		}
	}
	return nil
}

func (s *calicoSelector) list(key string, operator metav1.LabelSelectorOperator) error {
	if err := s.expect("{"); err != nil {
		return err
	}
	var values []string
	for {
		values = append(values, s.next())
		switch token := s.next(); token {
		case ",":
		case "}":
			return s.add(key, operator, values...)
		default:
			return fmt.Errorf("%q in a list", token)
		}
	}
}

// add adds a requirement for a label.
func (s *calicoSelector) add(key string, operator metav1.LabelSelectorOperator, quoted ...string) error {
	into := &s.pods
	var values []string
	for _, v := range quoted {
		if len(v) < 2 || v[0] != '"' && v[0] != '\'' {
			return fmt.Errorf("%q is no text in quotation marks", v)
		}
		values = append(values, v[1:len(v)-1])
	}
	if s.ofNamespaces {
		into = &s.namespaces
	}
	switch {
	case key == "projectcalico.org/name" && s.ofNamespaces, key == "projectcalico.org/namespace" && !s.ofNamespaces:
		into, key = &s.namespaces, corev1.LabelMetadataName
	case strings.HasPrefix(key, "projectcalico.org/"):
		return fmt.Errorf("label %s is Calico's and has no equal; write a label of the pods", key)
	}
	if operator == metav1.LabelSelectorOpIn && len(values) == 1 && into.MatchLabels[key] == "" && values[0] != "" {
		metav1.AddLabelToSelector(into, key, values[0])
		return nil
	}
	into.MatchExpressions = append(into.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values})
	return nil
}
