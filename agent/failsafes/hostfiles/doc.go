// Package hostfiles reads the files of a host that name destinations of the node: the API
// server of the kubelet, time servers and resolvers. Package failsafes calls it and resolves
// the names. The package opens no connection and changes nothing.
//
// A file that does not exist is no error. A file that exists and cannot be read or parsed is
// one, so that its last destinations are kept.
package hostfiles
