// Package cni reads the addresses of a node's pods from the results of their network
// plugins. A container runtime that uses libcni (containerd, CRI-O) keeps the result of
// each attachment as a file, from before the pod's first container starts until the pod's
// sandbox is gone. The kubelet publishes the same addresses in the pod's status, some 0.1
// to 1 s after the first container has started.
//
// The agent runs one Watcher and passes its Results to source/kube. The package knows
// neither pods' objects nor policies.
package cni
