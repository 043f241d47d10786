package suggest

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/testkit/fatal"
)

// FuzzSuggest: from any file, the suggestion consists of comments and valid policies that
// select pods of one workload.
func FuzzSuggest(f *testing.F) {
	head := `{"v":1,"time":"2026-05-01T12:00:00Z","node":"n",`
	for _, text := range []string{
		flowText(cart, "denied", "tcp", "192.0.2.10 443", "unmatched", named("www.example.org", "")),
		flowText(cart, "would-deny", "icmp", "2001:db8::1", "ports", named("WWW.example.org.", "")+","+named("on", "")),
		flowText(plainly, "denied", "udp", "192.0.2.10 53", "unmatched", named("1e3", "")),
		flowText(plainly, "denied", "tcp", "192.0.2.10 53", "expired", named("1.2", matched)),
		asked(cart, "refused", "xn--a.test", ""), asked(plainly, "unmatched", "*", withAnswer),
	} {
		f.Add(head+strings.TrimPrefix(text, "{"), 2, true)
	}
	f.Fuzz(func(t *testing.T, text string, folds int, deep bool) {
		l := NewLog()
		if err := audit.Read(strings.NewReader(text), func(line audit.Line) error {
			_ = l.Add(line) // refused lines are left out
			return nil
		}, nil); err != nil {
			t.Fatal(err)
		}
		s := l.Suggest(Options{Fold: max(folds, 0), Deep: deep, Unused: "tcp/443", EveryProtocol: deep})
		var b strings.Builder
		fatal.If(t, s.Write(&b))
		if _, err := s.List(); err != nil {
			t.Fatal(err)
		}
		read := 0
		for doc := range strings.SplitSeq("\n"+b.String(), "\n---\n") {
			var p v1alpha1.FQDNNetworkPolicy
			fatal.If(t, yaml.UnmarshalStrict([]byte(doc), &p), "in", doc)
			if p.Kind == "" {
				continue
			}
			if problems := fqdnnp.Validate(&p); problems != nil || len(p.Spec.PodSelector.MatchLabels) == 0 || len(p.Spec.Egress) == 0 {
				t.Fatalf("%v of\n%s", problems, doc)
			}
			read++
		}
		if read != len(s.objects()) {
			t.Fatalf("%d policies are read of %d:\n%s", read, len(s.objects()), b.String())
		}
	})
}
