package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// readAll returns what Read makes of a text.
func readAll(t *testing.T, r io.Reader) (lines []Line, bad []string) {
	t.Helper()
	err := Read(r, func(l Line) error { lines = append(lines, l); return nil },
		func(number int, err error) { bad = append(bad, fmt.Sprintf("%d: %v", number, err)) })
	fatal.If(t, err)
	return lines, bad
}

// TestReadWrittenLines: lines of either kind come back as they were, through
// readers that give little at a time.
func TestReadWrittenLines(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	var text []byte
	var want []Line
	for i := range 500 {
		if i%3 == 0 {
			f := randomFlow(t, r)
			text, want = appendFlow(text, nodeField("node-1"), f), append(want, flowLineOf("node-1", f))
		} else {
			rec := randomRecord(t, r)
			text, want = appendRecord(text, "node-1", &rec), append(want, lineOf("node-1", rec))
		}
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(text), "halves": iotest.HalfReader(bytes.NewReader(text)), "no last newline": bytes.NewReader(text[:len(text)-1]),
		"CRLF": bytes.NewReader(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))),
	} {
		got, bad := readAll(t, r)
		diff.Empty(t, bad, name)
		diff.Error(t, want, got, name)
	}
}

// TestLineRoundTrip: a Line that a program prints again is the same line.
func TestLineRoundTrip(t *testing.T) {
	for _, text := range documentedLines(t) {
		l, err := ParseLine([]byte(text))
		fatal.If(t, err)
		again, err := json.Marshal(l)
		fatal.If(t, err)
		back, err := ParseLine(again)
		if d := cmp.Diff(l, back); err != nil || d != "" {
			t.Errorf("%v, %s", err, d)
		}
		var a, b map[string]any
		fatal.If(t, errors.Join(json.Unmarshal([]byte(text), &a), json.Unmarshal(again, &b)))
		for _, m := range []map[string]any{a, b} {
			for _, k := range []string{"time", "last", "names", "answers"} {
				delete(m, k) // whose times have another number of digits
			}
		}
		diff.Error(t, a, b)
	}
}

func TestBadLinesAreNamedAndSkipped(t *testing.T) {
	lines := documentedLines(t)
	good, flow := strings.TrimSpace(lines[0]), strings.TrimSpace(lines[6])
	for name, c := range map[string]struct{ text, says string }{
		"text":            {"namegate: the agent started", "it is no line of the audit log: invalid character"},
		"another's JSON":  {`{"level":"info"}`, "it has no version"},
		"a list":          {`[1]`, "it is no line of the audit log: "},
		"a number":        {`5`, "it is no line of the audit log: "},
		"null":            {`null`, "it has no version"},
		"torn":            {good[:len(good)/2], "it is no line of the audit log: unexpected end"},
		"lost":            {`{"v":1,"kind":"lost","count":7}`, "7 lines are missing here: they came faster than they were taken"},
		"newer":           {strings.Replace(good, `"v":1`, `"v":2`, 1), "its version is 2, and this program knows 1; read it with a newer one"},
		"newer and other": {`{"v":3,"kind":["dns"]}`, "its version is 3, and this program knows 1; read it with a newer one"},
		"negative":        {`{"v":-3,"kind":"dns"}`, "it has no version"},
		"other kind":      {strings.Replace(good, `"dns"`, `"tls"`, 1), `its kind "tls" is unknown to this program; read it with a newer one`},
		"no kind":         {`{"v":1}`, `its kind "" is unknown`},
		"no question":     {strings.Replace(good, `"question"`, `"quest"`, 1), "it is no whole decision: "},
		"no verdict":      {strings.Replace(good, `"verdict":"allowed",`, ``, 1), "it is no whole decision: "},
		"flow's verdict":  {strings.Replace(good, `"allowed"`, `"would-deny"`, 1), "it is no whole decision: "},
		"no destination":  {strings.Replace(flow, `"destination"`, `"to"`, 1), "it is no whole flow: "},
		"no address":      {strings.Replace(flow, `"address":"192.0.2.10"`, `"address":"there"`, 1), "it is no whole flow: "},
		"dns' verdict":    {strings.Replace(flow, `"denied"`, `"allowed"`, 1), "it is no whole flow: "},
		"no time":         {strings.Replace(flow, `"time"`, `"tme"`, 1), "it is no whole line: "},
		"no pod":          {strings.Replace(flow, `"name":"cart-7d9f"`, `"name":""`, 1), "it is no whole line: "},
		"wrong type":      {strings.Replace(flow, `"port":8443`, `"port":"https"`, 1), "it is no line of the audit log: "},
		"a port too far":  {strings.Replace(flow, `"port":8443`, `"port":65536`, 1), "it is no line of the audit log: "},
		"too long":        {strings.Replace(good, `"node-1"`, `"`+strings.Repeat("n", maxLine)+`"`, 1), "the line is longer than 1 MiB"},
		"much too long":   {strings.Repeat("x", 3*maxLine), "the line is longer than 1 MiB"},
	} {
		for _, end := range []string{"\n", ""} {
			got, bad := readAll(t, strings.NewReader(flow+"\n"+good+"\n\n"+c.text+end))
			if len(got) != 2 || len(bad) != 1 || !strings.HasPrefix(bad[0], "4: ") || !strings.Contains(bad[0], c.says) {
				t.Errorf("%s: %d lines, bad %.200v, want %s", name, len(got), bad, c.says)
			}
		}
		got, bad := readAll(t, strings.NewReader(c.text+"\n"+good+"\n"+flow))
		if len(got) != 2 || len(bad) != 1 || !strings.HasPrefix(bad[0], "1: ") {
			t.Errorf("%s: %d lines behind it, bad %.200v", name, len(got), bad)
		}
	}
}

func TestReadTakesLinesUpToTheBound(t *testing.T) {
	text := strings.TrimSpace(documentedLines(t)[0])
	text = strings.Replace(text, `"node-1"`, `"`+strings.Repeat("n", maxLine-len(text)+len("node-1"))+`"`, 1)
	got, bad := readAll(t, strings.NewReader(text+"\n"+text))
	if len(text) != maxLine || len(got) != 2 || len(bad) != 0 {
		t.Errorf("%d lines of %d bytes, bad %.100v", len(got), len(text), bad)
	}
}

// TestReadSkipsPrefixes: files of container runtimes and kubectl's prefixes.
func TestReadSkipsPrefixes(t *testing.T) {
	good := documentedLines(t)[0]
	for _, front := range []string{"2026-05-01T12:00:00.250000000Z stdout F ", "[pod/namegate-x7k2p/agent] ", "node-1: "} {
		got, bad := readAll(t, strings.NewReader(front+good))
		if len(got) != 1 || len(bad) != 0 || got[0].Pod.Name != "cart-7d9f" {
			t.Errorf("%s: %v, bad %v", front, got, bad)
		}
	}
}

// TestReadFindsLinesBehindATornOne: an agent that was killed while it wrote leaves half
// a line without an end, and the next begins right behind it.
func TestReadFindsLinesBehindATornOne(t *testing.T) {
	good := strings.TrimSpace(documentedLines(t)[0])
	for name, c := range map[string]struct {
		text      string
		good, bad int
	}{
		"torn, then one":                 {good[:60] + good, 1, 1},
		"torn twice, then one":           {good[:60] + good[:5] + good, 1, 2},
		"two in one":                     {good + good, 2, 0},
		"a prefix, torn, then one":       {"node-1: " + good[:60] + good, 1, 1},
		"the end of one, then one":       {good[60:] + good, 1, 0},
		"torn, then another's JSON":      {good[:60] + `{"level":"info"}`, 0, 1},
		"another object in a line":       {strings.Replace(good, `"verdict"`, `"more":{"v":1},"verdict"`, 1), 1, 0},
		"a name that looks like a line":  {strings.Replace(good, "www.example.org", `{\"v\":1,\"kind\":\"flow\"}`, 1), 1, 0},
		"a newer one behind a torn one":  {good[:60] + strings.Replace(good, `"v":1`, `"v":2`, 1), 0, 2},
		"a line that ends in two bytes":  {good + "\r", 1, 0},
		"a mark of the order of bytes":   {"\ufeff" + good, 1, 0},
		"one whose end is another's end": {good + good[60:], 0, 1},
	} {
		if got, bad := readAll(t, strings.NewReader(c.text+"\n")); len(got) != c.good || len(bad) != c.bad {
			t.Errorf("%s: %d lines, bad %v; want %d, %d", name, len(got), bad, c.good, c.bad)
		}
	}
}

func TestReadReturnsErrors(t *testing.T) {
	text := documentedLines(t)[0]
	broken, full := errors.New("the disk is broken"), errors.New("enough")
	err := Read(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), func(Line) error { return nil }, nil)
	diff.Is(t, broken, err, "of the reader")
	n := 0
	err = Read(strings.NewReader(text+"bad\n"+text+text), func(Line) error {
		if n++; n == 2 {
			return full
		}
		return nil
	}, nil)
	if !errors.Is(err, full) || n != 2 {
		t.Errorf("of the caller: %v after %d lines", err, n)
	}
	if err := Read(strings.NewReader(""), nil, nil); err != nil {
		t.Errorf("of an empty file: %v", err)
	}
}

// FuzzRead: every line of any text is either read or reported, and every read line is
// complete.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"v":1,"kind":"dns","time":"2026-05-01T12:00:00Z","verdict":"allowed","pod":{"namespace":"a","name":"b"},"question":{}}` + "\n\nx"))
	f.Add([]byte(`{"v":1,"kind":"flow","verdict":"denied","destination":{"address":"::"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		want := 0
		for line := range bytes.Lines(text) {
			if len(bytes.TrimSpace(line)) > 0 {
				want++
			}
		}
		got, last := 0, 0
		err := Read(bytes.NewReader(text), func(l Line) error {
			got++
			if l.V != Version || l.Kind == KindDNS && l.Question == nil || l.Kind == KindFlow && l.Destination == nil || l.Pod.Name == "" {
				t.Errorf("%+v is taken", l)
			}
			return nil
		}, func(number int, err error) {
			got++
			if number <= last || err == nil {
				t.Errorf("line %d is bad after %d: %v", number, last, err)
			}
			last = number
		})
		if err != nil || got != want {
			t.Errorf("%d of %d lines, %v", got, want, err)
		}
	})
}
