package convert

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calicoTerm is one term of a selector of Calico: all(), has(LABEL), !has(LABEL), LABEL == VALUE, LABEL != VALUE,
// LABEL in {VALUES} or LABEL not in {VALUES}.
var calicoTerm = regexp.MustCompile(`^(?:all\s*\(\s*\)|(!?)\s*has\s*\(\s*([\w./-]+)\s*\)|([\w./-]+)\s*(==|!=|\s(?:not\s+)?in\s*\{)([^{}]*)(\}?))$`)

// calicoSelector reads an expression of Calico as label selectors of namespaces and of pods.
// Selectors of Kubernetes have no "or", and no parts of values.
type calicoSelector struct {
	ofNamespaces     bool // the expression is about namespaces
	ofHosts          bool // it may be about host endpoints
	namespaces, pods metav1.LabelSelector
}

// read adds the requirements of an expression: terms with && between them. Parentheses around terms change nothing.
func (s *calicoSelector) read(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	err, open := error(nil), 0
	if strings.Contains(text, "||") {
		err = errors.New("selectors here have no ||; write a policy for each side")
	}
	for part := range strings.SplitSeq(text, "&&") {
		term := strings.TrimSpace(strings.TrimLeft(part, "( \t\n"))
		open += strings.Count(part, "(") - strings.Count(term, "(")
		for ; strings.HasSuffix(term, ")") && strings.Count(term, ")") > strings.Count(term, "("); open-- {
			term = strings.TrimSpace(strings.TrimSuffix(term, ")"))
		}
		if open < 0 {
			err = cmp.Or(err, errors.New("a parenthesis is closed that was not opened"))
		}
		err = cmp.Or(err, s.term(term))
	}
	if open > 0 {
		err = cmp.Or(err, errors.New("a parenthesis is not closed"))
	}
	if err != nil {
		return fmt.Errorf("selector %q: %w", text, err)
	}
	return nil
}

// term reads one term.
func (s *calicoSelector) term(text string) error {
	m := calicoTerm.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%q: only all(), has(LABEL), !has(LABEL), comparisons with ==, != and in {…}, && and parentheses have an equal", text)
	}
	not, label, key, operator, values := m[1], m[2], m[3], m[4], m[5]
	list := strings.HasSuffix(operator, "{")
	switch {
	case list != (m[6] != ""):
		return fmt.Errorf("%q: braces are around a list, behind in", text)
	case not != "":
		return s.add(label, metav1.LabelSelectorOpDoesNotExist)
	case label != "":
		return s.add(label, metav1.LabelSelectorOpExists)
	case key == "": // all()
		return nil
	case list && strings.Contains(operator, "not"):
		return s.add(key, metav1.LabelSelectorOpNotIn, strings.Split(values, ",")...)
	case list:
		return s.add(key, metav1.LabelSelectorOpIn, strings.Split(values, ",")...)
	case operator == "!=":
		return s.add(key, metav1.LabelSelectorOpNotIn, values)
	}
	return s.add(key, metav1.LabelSelectorOpIn, values)
}

// add adds a requirement for a label.
func (s *calicoSelector) add(key string, operator metav1.LabelSelectorOperator, quoted ...string) error {
	into := &s.pods
	var values []string
	for _, v := range quoted {
		if v = strings.TrimSpace(v); len(v) < 2 || v[0] != '"' && v[0] != '\'' || strings.IndexByte(v[1:], v[0]) != len(v)-2 {
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
	case strings.HasPrefix(key, "projectcalico.org/") && (key != calicoCreatedBy || !s.ofHosts):
		return fmt.Errorf("label %s is Calico's and has no equal; write a label of the pods", key)
	}
	if operator == metav1.LabelSelectorOpIn && len(values) == 1 && into.MatchLabels[key] == "" && values[0] != "" {
		metav1.AddLabelToSelector(into, key, values[0])
		return nil
	}
	into.MatchExpressions = append(into.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values})
	return nil
}
