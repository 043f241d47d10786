// Package cluster brings up a real Kubernetes cluster of two nodes on one
// machine, for the scenarios and for those who develop them.
//
//	world      ngk-world      the outside: DNS, echo servers on the documentation addresses
//	control    ngk-control    etcd, API server, controllers, scheduler
//	node-a     ngk-node-a     kubelet, containerd, kube-proxy; pods are routed (CNI plugin ptp)
//	node-b     ngk-node-b     the same; pods hang on a bridge (CNI plugin bridge)
//	fabric     ngk-fabric     the switch that joins them
//
// Each is a network, mount, process and UTS namespace of its own, held by one
// process: when that one is killed the kernel ends everything in it and takes
// its mounts away, whatever state it was in. Nothing has a route to the machine's
// own network.
package cluster
