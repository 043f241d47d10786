package grants

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy/fqdn"
)

// at is a time of the fake clock, which runs since 1970.
func at(seconds int64) monotonic { return monotonic(seconds * int64(time.Second)) }

func comment(rs []reason) string { return string(appendComment(nil, rs)) }

// sameReason lets cmp look into reasons.
var sameReason = cmp.Options{cmp.AllowUnexported(reason{}), cmp.Comparer(func(a, b matches) bool { return a == b })}

func TestCommentText(t *testing.T) {
	long := strings.Repeat("a", 60)
	tests := []struct {
		reasons []reason
		want    string
	}{
		{nil, ""},
		{[]reason{{name: dns("www.example.org"), until: at(1790000000), by: matchesOf([]string{"shop/allow-out *.example.org"})}}, "1790000000 www.example.org shop/allow-out *.example.org"},
		{[]reason{{name: dns("www.example.org"), until: at(1790000000) + 1, by: matches{}}}, "1790000001 www.example.org"},
		{[]reason{{name: "", until: at(5), by: matches{}}}, "5 ."},
		{
			[]reason{{name: dns("b.test"), until: at(10), by: matchesOf([]string{"a/b b.test"})}, {name: dns("c.test"), until: at(20), by: matchesOf([]string{"a/b *.test", "a/c *.test"})}, {name: dns("a.test"), until: at(10), by: matches{}}},
			"20 c.test a/b *.test,a/c *.test ; 10 a.test ; 10 b.test a/b b.test",
		},
		// By goes before reasons do, and then the soonest end.
		{
			[]reason{{name: dns("a.test"), until: at(10), by: matchesOf([]string{long})}, {name: dns("b.test"), until: at(20), by: matchesOf([]string{long, long, long, long})}},
			"20 b.test ; 10 a.test",
		},
		{
			[]reason{
				{name: dns("a." + long + ".test"), until: at(10)}, {name: dns("b." + long + ".test"), until: at(30)},
				{name: dns("c." + long + ".test"), until: at(20)}, {name: dns("d." + long + ".test"), until: at(40)},
			},
			"40 d." + long + ".test ; 30 b." + long + ".test ; 20 c." + long + ".test",
		},
	}
	for _, test := range tests {
		if got := comment(test.reasons); got != test.want {
			t.Errorf("comment of %v:\n got %s\nwant %s", test.reasons, got, test.want)
		}
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
		for i := range r.IntN(12) {
			// The deadlines fall, so that the order is the comment's.
			x := reason{name: randomName(r), until: at(1_700_000_000 - int64(i)*1000 - r.Int64N(900))}
			var by []string
			for range r.IntN(3) {
				by = append(by, fmt.Sprintf("ns%d/policy-%d *.p%d.test", r.IntN(5), r.IntN(99), r.IntN(9)))
			}
			x.by = matchesOf(by)
			rs = append(rs, x)
		}
		text := comment(rs)
		if len(text) > dataplane.CommentMax {
			t.Fatalf("%d bytes: %s", len(text), text)
		}
		if strings.ContainsAny(text, "\x00\n\t") {
			t.Fatalf("a comment that a listing cannot show: %q", text)
		}
		got := parseComment(text)
		if len(rs) > 0 && len(got) == 0 {
			t.Fatalf("the latest reason is lost: %v", rs)
		}
		for i, g := range got {
			want := rs[i]
			if g.by == (matches{}) {
				want.by = matches{}
			}
			if diff := cmp.Diff(want, g, sameReason); diff != "" {
				t.Fatalf("reason %d of %q (-want +got):\n%s", i, text, diff)
			}
		}
		full := 0
		for _, x := range rs {
			full += len(x.append(nil, true)) + len(separator)
		}
		if full-len(separator) <= dataplane.CommentMax && len(got) != len(rs) {
			t.Fatalf("%d of %d reasons came back from %q", len(got), len(rs), text)
		}
	}
}

func TestParseCommentOfOthers(t *testing.T) {
	tests := []struct {
		text string
		want []reason
	}{
		{"", nil},
		{" ;  ; ", nil},
		{"allowed by hand", nil},
		{"x www.example.org", nil},
		{"12", nil},
		{"12 ", nil},
		{"12 a..b", nil},
		{"99999999999999999999 www.example.org", nil},
		{"12  www.example.org", nil},
		{"x a.test ; 13 b.test", []reason{{name: dns("b.test"), until: at(13)}}},
		{"-5 www.example.org", []reason{{name: dns("www.example.org"), until: at(-5)}}},
		{`12 a\032b.test p`, []reason{{name: dns(`a\032b.test`), until: at(12), by: matchesOf([]string{"p"})}}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, parseComment(test.text), sameReason); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}

func FuzzParseComment(f *testing.F) {
	f.Add("1790000000 www.example.org shop/allow-out *.example.org ; 5 .")
	f.Add("x ; -9223372036854775808 a ; 1 \\999")
	f.Fuzz(func(t *testing.T, s string) {
		first := parseComment(s)
		text := comment(first)
		if len(text) > dataplane.CommentMax {
			t.Fatalf("%d bytes", len(text))
		}
		for _, r := range parseComment(text) {
			found := false
			for _, o := range first {
				found = found || o.name == r.name && o.until.seconds() == r.until.seconds()
			}
			if !found {
				t.Fatalf("%q became %q with a reason that was not there: %v", s, text, r)
			}
		}
	})
}

func TestCommentOfANameWithASemicolon(t *testing.T) {
	want := reason{name: fqdn.Name("\x02a;"), until: at(12), by: matchesOf([]string{"shop/allow *"})}
	got := parseComment(comment([]reason{want}))
	if len(got) != 1 || got[0].name != want.name {
		t.Errorf("%q came back as %v", comment([]reason{want}), got)
	}
}
