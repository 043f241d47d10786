// Package v1alpha1 holds the API types of the group namegate.io, version v1alpha1.
//
// The manifests of the kinds are generated from these types into the folder above.
// Defaults and checks of the schemas hold again in Go (policy/api), because a
// manifest read from a file, or one that an older schema let in, passes no API server.
//
// +kubebuilder:object:generate=true
// +groupName=namegate.io
package v1alpha1
