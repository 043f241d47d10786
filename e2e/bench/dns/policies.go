package main

import (
	"fmt"
	"strings"

	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/lab"
)

// How many policies the namespace has, and how many of them select the pods.
const (
	policyCount   = 50
	selectEvery   = 10
	newZones      = 4 // w0 to w3 below fake.NewZone, each with a port set of its own
	manifestSpace = "shop"
)

// manifests are the pods and the policies of their namespace. Most
// policies are for other pods or other names, as in a real namespace. What the
// benchmark asks for is matched by a pattern of the last policies.
func manifests(pods map[string]*lab.Pod) map[string]string {
	files := map[string]string{}
	for name, p := range pods {
		files["pod-"+name+".yaml"] = p.Manifest(manifestSpace, name, map[string]string{"app": "measured", "tier": "web"})
	}
	for i := range policyCount {
		labels := fmt.Sprintf("{app: other-%d}", i)
		if i%selectEvery == 0 {
			labels = "{tier: web}"
		}
		files[fmt.Sprintf("policy-%02d.yaml", i)] = render(fmt.Sprintf("allow-%02d", i), labels, services(i), 443, "")
	}
	files["policy-kept.yaml"] = render("allow-kept", "{app: measured}", []string{"*." + fake.KeptZone}, 443, "")
	for i := range newZones {
		// Grants of new names end two seconds after the answer, so that the agent
		// removes about as many as it adds.
		files[fmt.Sprintf("policy-new-%d.yaml", i)] = render(fmt.Sprintf("allow-new-%d", i), "{app: measured}",
			[]string{fmt.Sprintf("*.w%d.%s", i, fake.NewZone)}, 8000+i, "ttl: {minSeconds: 1, maxSeconds: 60, graceSeconds: 1}")
	}
	return files
}

// services are names and patterns of the kind that policies list.
func services(i int) []string {
	return []string{
		fmt.Sprintf("api.vendor-%d.test", i), fmt.Sprintf("*.storage-%d.test", i), fmt.Sprintf("**.cdn-%d.test", i),
		fmt.Sprintf("queue-*.region-%d.cloud.test", i), fmt.Sprintf("login.partner-%d.example.org", i),
	}
}

// render writes one policy; more is a further line of its spec.
func render(name, labels string, patterns []string, port int, more string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec:\n", name, manifestSpace)
	fmt.Fprintf(&b, "  podSelector: {matchLabels: %s}\n  egress:\n  - matches:\n", labels)
	for _, p := range patterns {
		kind := "name"
		if strings.Contains(p, "*") {
			kind = "pattern"
		}
		fmt.Fprintf(&b, "    - %s: %q\n", kind, p)
	}
	fmt.Fprintf(&b, "    ports: [{protocol: TCP, port: %d}]\n", port)
	if more != "" {
		fmt.Fprintf(&b, "  %s\n", more)
	}
	return b.String()
}
