// Package console is the language between people and agents: the questions, the rows of the answers, and what
// may go wrong. Package serve answers in the agent, package client asks, and package print shows the answers.
package console

import (
	"fmt"
	"strings"
)

// Where an agent answers.
const (
	StatusPath   = "/v1/status"
	PodsPath     = "/v1/pods"
	GrantsPath   = "/v1/grants"
	PoliciesPath = "/v1/policies"
	ExplainPath  = "/v1/explain"
	AuditPath    = "/v1/audit"
)

// CompleteHeader has the seconds for which an answer with lines has every DNS decision about the pods of
// its namespace, or without one about all pods and the node. A duration, so that the clocks
// of the node and of the caller may differ.
const CompleteHeader = "Namegate-Complete-Seconds"

// PodName reads how a pod is named: NAMESPACE/NAME, or NAME with the namespace
// beside it, "" for any. Both namespaces must be the same.
func PodName(namespace, pod string) (ns, name string, err error) {
	ns, name, found := strings.Cut(pod, "/")
	switch {
	case !found:
		ns, name = namespace, pod
	case namespace != "" && ns != namespace:
		return "", "", fmt.Errorf("the pod %s is not in the namespace %s; leave one of them out", pod, namespace)
	case ns == "":
		return "", "", fmt.Errorf("%q is no pod; write NAMESPACE/NAME or NAME", pod)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is no pod; write NAMESPACE/NAME or NAME", pod)
	}
	return ns, name, nil
}
