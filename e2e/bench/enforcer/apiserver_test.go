package main

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestAPIServer: the pods that an agent asks for are those of the cluster, in a list
// and in a streamed one.
func TestAPIServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	in := peerCluster() // less of it than is measured
	in.Pods, in.Remote, in.NetworkPolicies = in.Pods[:25], in.Remote[:500], in.NetworkPolicies[:100]
	s := newAPIServer(in)
	s.serve(l)
	defer s.close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + l.Addr().String()})
	fatal.If(t, err)
	ctx := t.Context()
	for selector, want := range map[string]int{"spec.nodeName=" + thisNode: len(in.Pods), "spec.nodeName!=" + thisNode: len(in.Remote)} {
		list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: selector})
		fatal.If(t, err)
		if len(list.Items) != want {
			t.Errorf("%s: %d pods, want %d", selector, len(list.Items), want)
		}
		w, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: selector, SendInitialEvents: new(true), AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		fatal.If(t, err)
		streamed := 0
		for e := range w.ResultChan() {
			if e.Type == watch.Bookmark {
				break
			}
			if p, ok := e.Object.(*corev1.Pod); !ok || len(p.Status.PodIPs) != 2 {
				t.Fatalf("%s: %v", selector, e.Object)
			}
			streamed++
		}
		w.Stop()
		if streamed != want {
			t.Errorf("%s: %d pods streamed, want %d", selector, streamed, want)
		}
	}
	policies, err := client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil || len(policies.Items) != len(in.NetworkPolicies) {
		t.Errorf("%d NetworkPolicies, %v", len(policies.Items), err)
	}
}
