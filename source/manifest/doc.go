// Package manifest is the policy source for hosts without Kubernetes: a folder of
// manifests.
//
// The files *.yaml, *.yml and *.json of the folder itself are read, not those of
// folders in it, and not those whose name begins with a dot. They may hold several
// documents of the kinds FQDNNetworkPolicy (namegate.io/v1alpha1), NetworkPolicy
// (networking.k8s.io/v1), Namespace, Pod and List (v1). Fields that do not exist are errors. Anything else in a document
// is left out and reported.
//
// A file that cannot be read as a whole changes nothing: what it last held stays
// in force, and the file is reported until it is mended or deleted. Only deleting
// a file removes what it holds, so a file that is cut to nothing for a moment
// while somebody writes it opens nothing.
//
// The folder is watched. Changes are applied once nothing has changed for
// QuietDelay, or MostDelay after the first of them. The symbolic link ..data of
// a mounted ConfigMap may be swapped under it, and the folder itself replaced.
package manifest
