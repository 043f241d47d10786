// Package v1alpha1 holds the API types of the group namegate.io, version v1alpha1.
//
// The manifests of the kinds are generated from these types into the folder above.
// Defaults and checks of the schemas hold again in Go (policy/api), because a
// manifest read from a file passes no API server.
//
// Go programs apply policies by the apply configurations in crds/applyconfiguration, with any client.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="../applyconfiguration"
// +groupName=namegate.io
package v1alpha1
