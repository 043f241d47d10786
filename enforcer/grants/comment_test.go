package grants

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	cmpdiff "github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
)

// at is a time of the fake clock, which runs since 1970.
func at(seconds int64) monotonic { return monotonic(seconds * int64(time.Second)) }

// unshared is a set whose comments have no pod.
var unshared = &set{}

func comment(rs []reason) string { return string(unshared.appendComment(nil, rs)) }

func parsed(comment string) []reason {
	all, _, _, _ := unshared.parse(nil, comment)
	return all
}

// sameReason lets cmp look into reasons.
var sameReason = cmpdiff.Options{cmpdiff.AllowUnexported(reason{}), cmpdiff.Comparer(func(a, b matches) bool { return a == b })}

func TestCommentText(t *testing.T) {
	long := strings.Repeat("a", 60)
	both := []reason{{name: dns("a.test"), until: at(5)}, {name: dns("b.test"), until: at(7) + 1, held: 2}, {name: dns("c.test"), until: at(8)}}
	if got, want := string((&set{deadlines: true}).appendComment(nil, both)), "b.test until=8 since=2 ; c.test until=8 ; a.test until=5"; got != want {
		t.Errorf("with deadlines %q, want %q", got, want)
	}
	for _, test := range []struct {
		reasons []reason
		want    string
	}{
		{nil, ""},
		{[]reason{{name: dns("www.example.org"), by: matchesOf([]string{"shop/allow-out *.example.org"})}}, "www.example.org shop/allow-out *.example.org"},
		{[]reason{{name: dns("www.example.org")}}, "www.example.org"},
		{[]reason{{name: ""}}, "."},
		{[]reason{{name: dns("www.example.org"), held: 8, by: matchesOf([]string{"p"})}}, "www.example.org since=8 p"},
		{
			[]reason{{name: dns("b.test"), by: matchesOf([]string{"a/b b.test"})}, {name: dns("c.test"), by: matchesOf([]string{"a/b *.test", "a/c *.test"})}, {name: dns("a.test")}},
			"a.test ; b.test a/b b.test ; c.test a/b *.test,a/c *.test",
		},
		// By goes before names do.
		{[]reason{{name: dns("a.test"), by: matchesOf([]string{long})}, {name: dns("b.test"), by: matchesOf([]string{long, long, long, long})}}, "a.test ; b.test"},
		{
			[]reason{{name: dns("a." + long + ".test")}, {name: dns("b." + long + ".test")}, {name: dns("c." + long + ".test")}, {name: dns("d." + long + ".test")}},
			"a." + long + ".test ; b." + long + ".test ; c." + long + ".test ; ...",
		},
	} {
		diff.Equal(t, test.want, comment(test.reasons), "comment of", test.reasons)
	}
}

// randomName has labels of any bytes, as a pod may ask them below a "*".
func randomName(r *rand.Rand) fqdn.Name {
	var wire []byte
	for range r.IntN(4) {
		n := 1 + r.IntN(12)
		wire = append(wire, byte(n))
		for range n {
			c := byte('a' + r.IntN(26))
			if r.IntN(6) == 0 {
				c = byte(r.IntN(256))
			}
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			wire = append(wire, c)
		}
	}
	return fqdn.Name(wire)
}

func TestCommentRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		var rs []reason
		for range r.IntN(12) {
			x := reason{name: randomName(r)}
			if slices.ContainsFunc(rs, func(o reason) bool { return o.name == x.name }) {
				continue
			}
			var by []string
			for range r.IntN(3) {
				by = append(by, fmt.Sprintf("ns%d/policy-%d *.p%d.test", r.IntN(5), r.IntN(99), r.IntN(9)))
			}
			x.by = matchesOf(by)
			rs = append(rs, x)
		}
		slices.SortFunc(rs, func(a, b reason) int { return cmp.Compare(a.name, b.name) })
		text := comment(rs)
		if len(text) > namesMax {
			t.Fatalf("%d bytes: %s", len(text), text)
		}
		if strings.ContainsAny(text, "\x00\n\t") {
			t.Fatalf("a comment that a listing cannot show: %q", text)
		}
		got, _, whole, own := unshared.parse(nil, text)
		if !own || whole && len(got) != len(rs) || !whole && len(rs) > 0 && len(got) == len(rs) {
			t.Fatalf("%d of %d reasons came back, whole %v", len(got), len(rs), whole)
		}
		for i, g := range got {
			want := rs[i]
			if g.by == (matches{}) {
				want.by = matches{}
			}
			if diff := cmpdiff.Diff(want, g, sameReason); diff != "" {
				t.Fatalf("reason %d of %q (-want +got):\n%s", i, text, diff)
			}
		}
		full := 0
		for _, x := range rs {
			full += len(x.append(nil, true, false)) + len(separator)
		}
		if full <= namesMax-len(leftOut) && len(rs) > 0 && !whole {
			t.Fatalf("%d of %d reasons came back from %q", len(got), len(rs), text)
		}
	}
}

// TestParseCommentOfOthers: also of another pod, and of one whose pod is not known.
func TestParseCommentOfOthers(t *testing.T) {
	ofRule := &set{prefix: strings.Repeat("0", dataplane.PodIDLen) + " "}
	for _, test := range []struct {
		of         *set
		text       string
		want       []reason
		whole, own bool
	}{
		{unshared, "", nil, false, true},
		{unshared, " ;  ; ", nil, false, true},
		{unshared, "a..b", nil, false, true},
		{unshared, "a..b ; b.test", []reason{{name: dns("b.test")}}, false, true},
		{unshared, "a.test since=x p", nil, false, true},
		{unshared, "b.test ; ...", []reason{{name: dns("b.test")}}, false, true},
		{unshared, `a\032b.test since=5 p q`, []reason{{name: dns(`a\032b.test`), held: 5, by: matchesOf([]string{"p q"})}}, true, true},
		{unshared, "a.test until=12 since=5 p ; b.test until=13", []reason{{name: dns("a.test"), until: at(12), held: 5, by: matchesOf([]string{"p"})}, {name: dns("b.test"), until: at(13)}}, true, true},
		{unshared, "a.test until=99999999999999999999 p", nil, false, true},
		{ofRule, ofRule.prefix + "a.test", []reason{{name: dns("a.test")}}, true, true},
		{ofRule, "0123456789ab a.test", nil, false, false},
		{ofRule, "a.test", nil, false, true},
		{ofRule, "", nil, false, true},
	} {
		got, _, whole, own := test.of.parse(nil, test.text)
		if diff := cmpdiff.Diff(test.want, got, sameReason); diff != "" || whole != test.whole || own != test.own {
			t.Errorf("%q: whole %v, own %v (-want +got):\n%s", test.text, whole, own, diff)
		}
	}
}

func FuzzParseComment(f *testing.F) {
	f.Add("www.example.org since=5 shop/allow-out *.example.org ; .")
	f.Add("x ; a ; 1 \\999")
	f.Fuzz(func(t *testing.T, s string) {
		first := parsed(s)
		text := comment(first)
		if len(text) > namesMax {
			t.Fatalf("%d bytes", len(text))
		}
		for _, r := range parsed(text) {
			if !slices.ContainsFunc(first, func(o reason) bool { return o.name == r.name }) {
				t.Fatalf("%q became %q with a name that was not there: %v", s, text, r)
			}
		}
	})
}

func TestCommentOfANameWithASemicolon(t *testing.T) {
	want := reason{name: fqdn.Name("\x02a;"), by: matchesOf([]string{"shop/allow *"})}
	got := parsed(comment([]reason{want}))
	if len(got) != 1 || got[0].name != want.name {
		t.Errorf("%q came back as %v", comment([]reason{want}), got)
	}
}
