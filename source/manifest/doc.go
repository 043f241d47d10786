// Package manifest is the policy source for hosts without Kubernetes: a folder of manifests.
// The agent makes one Source, and gets its States in one goroutine; check and convert read
// documents with Inspect. The package decides nothing: it knows neither views nor rules.
//
// The files *.yaml, *.yml and *.json of the folder itself are read, but no file in a folder
// below it, and none whose name begins with a dot. They may hold several documents of the
// kinds FQDNNetworkPolicy, ClusterFQDNNetworkPolicy and NodeNetworkPolicy (namegate.io/v1alpha1), NetworkPolicy
// (networking.k8s.io/v1), Namespace, Pod and List (v1). Unknown fields are errors. Any other object in a document is
// left out and reported.
//
// A file that cannot be read as a whole changes nothing: its last whole content stays in
// force, and the file is reported until it is corrected or deleted. Only deleting a file
// removes its objects, so a file that is empty for a moment while it is written opens
// nothing.
//
// The folder is watched. Changes are applied once nothing has changed for QuietDelay, or
// MostDelay after the first of them. The symbolic link ..data of a mounted ConfigMap may be
// swapped under it, and the folder itself replaced.
package manifest
