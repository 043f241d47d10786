package kube

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// aRealPod is a pod as clusters have it, some 6 KiB of JSON: the i-th of a cluster of
// 100 nodes with five pods of each workload.
func aRealPod(i int) *corev1.Pod {
	name := fmt.Sprintf("checkout-%d-7d9f8b6c5d-%05d", i/5, i)
	p := aWholePod(name, fmt.Sprintf("10.%d.%d.%d", 2+i/60000, i/250%250, 1+i%250))
	p.UID = types.UID(fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", i))
	p.Namespace, p.Spec.NodeName = fmt.Sprint("team-", i%50), fmt.Sprint("ip-10-0-0-", i%100, ".compute.internal")
	p.Labels = map[string]string{"app.kubernetes.io/name": "checkout", "app.kubernetes.io/instance": fmt.Sprint("checkout-", i/5), "app.kubernetes.io/version": "1.2.3",
		"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d9f8b6c5d", "tier": "backend", "team": fmt.Sprint(i % 50)}
	for j := range 8 {
		p.Annotations[fmt.Sprint("example.org/annotation-", j)] = "a value of some length, as operators and meshes write it"
	}
	c := &p.Spec.Containers[0]
	c.Image, c.Command = "registry.example.org/shop/checkout:1.2.3", []string{"/checkout", "--listen", ":8080"}
	for j := range 30 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_NUMBER_", j), Value: "some value of a setting"})
		c.VolumeMounts = append(c.VolumeMounts[:min(j, 6)], corev1.VolumeMount{Name: fmt.Sprint("volume-", j), MountPath: fmt.Sprint("/var/lib/checkout/", j)})
	}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")}
	for j := range 6 {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", j), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("config-", j)}}}})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(fmt.Sprint("Condition", j)), Status: corev1.ConditionTrue})
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", Operation: "Update",
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:status":{}}}}}`)})
	}
	return p
}

func heapMiB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// TestRemotePodsAreSmall: the kept part of a pod of another node is small. 5,000 were
// measured to take 6 MiB.
func TestRemotePodsAreSmall(t *testing.T) {
	const pods, most = 1000, 4.0 // MiB; whole they are some 15
	for name, noStream := range map[string]bool{"streamed": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			api := withPeers(t)
			api.noStream = noStream
			api.put("networkpolicies", with(aNetworkPolicy("shop", "all", "db"), toSpaces(nil)))
			for i := range pods {
				api.put("pods", aRealPod(i))
			}
			before := heapMiB()
			r := runAt(t, api)
			s := <-r.states
			used := heapMiB() - before
			if len(s.Input.Remote) != pods+1 {
				t.Fatalf("%d pods", len(s.Input.Remote))
			}
			t.Logf("%d pods of other nodes take %.1f MiB", pods, used)
			if used > most {
				t.Errorf("%.1f MiB, at most %.1f", used, most)
			}
			runtime.KeepAlive(api)
			runtime.KeepAlive(s)
		})
	}
}
