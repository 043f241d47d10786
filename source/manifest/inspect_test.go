package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// inspected returns a line for each part and object of a file.
func inspected(t *testing.T, name, text string) []string {
	t.Helper()
	parts, err := Inspect(name, []byte(text))
	fatal.If(t, err)
	var lines []string
	for _, p := range parts {
		if p.Err != nil {
			lines = append(lines, fmt.Sprintf("%d %v", p.Line, p.Err))
		}
		for _, o := range p.Objects {
			lines = append(lines, fmt.Sprintf("%d %s %s %s/%s policy=%v networkpolicy=%v pod=%v err=%v", p.Line, o.Path, o.Kind, o.Namespace, o.Name, o.Policy != nil, o.NetworkPolicy != nil, o.Pod != nil, o.Err))
		}
	}
	return lines
}

// TestInspectReadsDocumentsBesideABrokenOne.
func TestInspectReadsDocumentsBesideABrokenOne(t *testing.T) {
	const list = "apiVersion: v1\nkind: List\nitem: 1\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop}}\n- {kind: Pod}\n" +
		"- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: c}}]}\n"
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"p.yaml", "kind: [\n---\n" + podWeb + "---\n{}\n---\n~\n", []string{
			"1 yaml: line 1: did not find expected node content",
			"3  Pod shop/web policy=false networkpolicy=false pod=true err=<nil>",
			fmt.Sprintf("%d   / policy=false networkpolicy=false pod=false err=write apiVersion and kind", 4+strings.Count(podWeb, "\n")),
			fmt.Sprintf("%d the document holds nothing but null; write apiVersion and kind, or remove it", 6+strings.Count(podWeb, "\n")),
		}},
		{"p.yaml", list, []string{
			"1 items[0] Pod shop/b policy=false networkpolicy=false pod=true err=<nil>",
			"1 items[1] Pod / policy=false networkpolicy=false pod=false err=write apiVersion and kind",
			"1 items[2].items[0] Namespace /c policy=false networkpolicy=false pod=false err=<nil>",
			`1  List / policy=false networkpolicy=false pod=false err=strict decoding error: unknown field "item"`,
		}},
		{"p.json", "\n" + `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}` + "\n" + `{"kind"`, []string{
			"2  Secret /s policy=false networkpolicy=false pod=false err=<nil>",
			"3 unexpected EOF",
		}},
		{"p.yaml", allowDB + "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nitems:\n- {kind: NetworkPolicy, apiVersion: networking.k8s.io/v1, metadata: {name: a}}\n" +
			"- {kind: NetworkPolicy, apiVersion: networking.k8s.io/v1, metadata: {name: b}, spec: {egres: []}}\n", []string{
			"1  NetworkPolicy shop/db policy=false networkpolicy=true pod=false err=<nil>",
			"15 items[0] NetworkPolicy /a policy=false networkpolicy=true pod=false err=<nil>",
			`15 items[1] NetworkPolicy /b policy=false networkpolicy=false pod=false err=strict decoding error: unknown field "spec.egres"`,
			`15  NetworkPolicyList / policy=false networkpolicy=false pod=false err=strict decoding error: unknown field "items[1].spec.egres"`,
		}},
		{"p.yaml", other("one"), []string{"1  FQDNNetworkPolicy shop/one policy=true networkpolicy=false pod=false err=<nil>"}},
	} {
		got := inspected(t, c.name, c.text)
		diff.Error(t, c.want, got, c.text)
	}
}

// TestInspectServedIgnoresNewerFields: an unknown field of a Pod is one of a newer API server, of a policy an error.
func TestInspectServedIgnoresNewerFields(t *testing.T) {
	objects, err := InspectServed([][]byte{
		[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","newer":1},"spec":{"newer":{}}}`),
		[]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"role":"edge"}}}`),
		[]byte(`{"apiVersion":"namegate.io/v1alpha1","kind":"FQDNNetworkPolicy","metadata":{"name":"p","namespace":"shop"},"spec":{"podSelector":{},"newer":1}}`),
	})
	fatal.If(t, err)
	if len(objects) != 3 || objects[0].Err != nil || objects[0].Pod == nil || objects[0].Pod.Name != "web" || objects[1].Labels["role"] != "edge" {
		t.Fatalf("%+v", objects)
	}
	diff.Fails(t, `unknown field "spec.newer"`, objects[2].Err, "policy")
}
