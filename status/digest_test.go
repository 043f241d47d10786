package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestDigestOf(t *testing.T) {
	found := sortedFindings([]Finding{
		blocked("shop/web", "d"), blocked("shop/web", "b"), blocked("shop/web", "a"), blocked("shop/web", "a"), blocked("shop/web", "c"), blocked("shop/web", "e"),
		{Policy: "shop/web", Pod: pod("a"), Reason: Homeless, Message: "no interface"},
		{Policy: "shop/api", Reason: IPVS, Message: "the whole node"},
		{Policy: "", Pod: pod("a"), Reason: NotSeen, Message: "nobody's"},
		{Policy: "shop/api", Pod: pod("a"), Message: "without a reason"},
	})
	want := digest{Findings: []entry{
		{Policy: "shop/api", Reason: IPVS, Message: "the whole node"},
		{Policy: "shop/web", Reason: DNSBlocked, Message: "queries of a are dropped", Pods: []string{"shop/a", "shop/b", "shop/c", "shop/d"}, Count: 5},
		{Policy: "shop/web", Reason: Homeless, Message: "no interface", Pods: []string{"shop/a"}, Count: 1},
	}}
	diff.Error(t, want, digestOf(found))
}

func TestDigestRoundTrip(t *testing.T) {
	for _, findings := range [][]Finding{nil, {blocked("shop/web", "a"), blocked("shop/web", "b")}} {
		d := digestOf(sortedFindings(findings))
		text, err := d.encode()
		fatal.If(t, err)
		back, err := decodeDigest(text)
		fatal.If(t, err)
		diff.Error(t, d, back)
	}
}

// TestDigestIsBounded: however much a node finds, it can be written and read.
func TestDigestIsBounded(t *testing.T) {
	long := strings.Repeat("ü", 200)
	for name, c := range map[string]struct {
		policies int
		message  string
	}{
		"many entries":    {3 * maxEntries, "short"},
		"long texts":      {maxEntries, strings.Repeat("é", 5000)},
		"texts of quotes": {maxEntries, strings.Repeat("\"<", 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			var findings []Finding
			for i := range c.policies {
				for j := range 6 {
					findings = append(findings, Finding{Policy: fmt.Sprintf("shop/%s%d", long, i), Pod: pod(fmt.Sprintf("%s%d", long, j)), Reason: NotSeen, Message: c.message})
				}
			}
			text, err := digestOf(sortedFindings(findings)).encode()
			fatal.If(t, err)
			if len(text) > maxDigestBytes {
				t.Fatalf("%d bytes", len(text))
			}
			back, err := decodeDigest(text)
			fatal.If(t, err)
			if len(back.Findings) == 0 || len(back.Findings)+back.More != c.policies {
				t.Errorf("%d entries and %d more of %d", len(back.Findings), back.More, c.policies)
			}
		})
	}
}

func TestDecodeDigestChecksBounds(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "{}": true, "[]": false, "{": false, `{"findings":[{"count":-5,"pods":["a","b","c","d","e"]}]}`: true,
		`{"findings":[` + strings.Repeat(" ", maxDigestBytes) + `]}`: false,
	} {
		d, err := decodeDigest(text)
		diff.Equal(t, ok, err == nil, text, err)
		for _, e := range d.Findings {
			if e.Count != maxPodsNamed || len(e.Pods) != maxPodsNamed {
				t.Errorf("%d pods of %d", len(e.Pods), e.Count)
			}
		}
	}
}

func FuzzDecodeDigest(f *testing.F) {
	f.Add(`{"findings":[{"policy":"a/b","reason":"NotSeen","message":"x","pods":["a/p"],"count":3}],"more":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := decodeDigest(text)
		if err != nil {
			return
		}
		if len(d.Findings) > maxEntries {
			t.Fatalf("%d entries", len(d.Findings))
		}
		for _, e := range d.Findings {
			if len(e.Message) > maxMessageBytes || len(e.Pods) > maxPodsNamed || e.Count < len(e.Pods) {
				t.Fatalf("%+v", e)
			}
		}
		for _, c := range conditionsOf(aPolicy("a", "b"), nil, d.Findings, "") {
			if len(c.Message) > maxConditionBytes || c.Reason == "" {
				t.Fatalf("%+v", c)
			}
		}
	})
}
