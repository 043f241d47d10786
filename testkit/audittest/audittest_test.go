package audittest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// decision is a whole line with a number that differs.
func decision(n int) string {
	return fmt.Sprintf(`{"v":1,"kind":"dns","time":"2026-05-01T12:00:00.%06dZ","node":"node-1","verdict":"refused","pod":{"namespace":"shop","name":"p","ip":"10.244.1.17"},`+
		`"question":{"name":"w%d.example.org","type":"A","class":"IN"},"rcode":"REFUSED","latency_us":%d,"protocol":"udp"}`, n%1000000, n, n) + "\n"
}

func flow(count int) string {
	return fmt.Sprintf(`{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.000000Z","node":"node-1","verdict":"denied","pod":{"namespace":"shop","name":"p","ip":"10.244.1.17"},`+
		`"protocol":"tcp","destination":{"address":"192.0.2.1","port":443},"reason":"address","count":%d}`, count) + "\n"
}

func schema(t *testing.T) *Schema {
	t.Helper()
	s, err := Strict()
	fatal.If(t, err)
	return s
}

// TestLogNamesTheLine: a bad line is found at any position in a log.
func TestLogNamesTheLine(t *testing.T) {
	s := schema(t)
	var good strings.Builder
	for i := range 3 * each {
		good.WriteString(decision(i))
	}
	lines := strings.SplitAfter(good.String(), "\n")
	fatal.If(t, s.Log(strings.NewReader(good.String()), 0))
	for name, bad := range map[string]string{
		"unknown field": strings.Replace(decision(5), `"rcode"`, `"extra":1,"rcode"`, 1),
		"verdict":       strings.Replace(decision(5), `"refused"`, `"dropped"`, 1),
		"negative":      strings.Replace(decision(5), `"latency_us":`, `"latency_us":-`, 1),
		"cut":           decision(5)[:90] + "\n",
		"empty":         "\n",
		"a flow":        flow(2), // without last, and one with count 1 is good
	} {
		for _, at := range []int{0, each - 1, each, 2*each + 7, 3*each - 1} {
			text := strings.Join(lines[:at], "") + flow(1) + bad + strings.Join(lines[at:], "")
			if err := s.Log(strings.NewReader(text), 0); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d: ", at+2)) {
				t.Errorf("%s at line %d: %v", name, at+2, err)
			}
		}
	}
	if err := s.Log(strings.NewReader(decision(1)+decision(2)[:50]), 0); err != nil {
		t.Errorf("a line that is being written: %v", err)
	}
}

// TestCutLines: one for each kill, and nothing else that is bad.
func TestCutLines(t *testing.T) {
	s := schema(t)
	cut := decision(1)[:90] + "\n"
	for _, c := range []struct {
		text   string
		killed int
		good   bool
	}{
		{decision(1) + cut + decision(2), 1, true},
		{decision(1) + cut + cut + decision(2), 1, false},
		{decision(1) + cut + cut + decision(2), 2, true},
		{cut, 0, false},
		{"oops\n", 1, false},
		{strings.Replace(decision(5), `"refused"`, `"dropped"`, 1), 1, false},
	} {
		if err := s.Log(strings.NewReader(c.text), c.killed); (err == nil) != c.good {
			t.Errorf("%d killed: %v in\n%s", c.killed, err, c.text)
		}
	}
}

func TestFilesAreAllOfALog(t *testing.T) {
	s, path := schema(t), filepath.Join(t.TempDir(), "audit.log")
	if err := s.Files(path, 0); err != nil {
		t.Errorf("no file: %v", err)
	}
	write := func(path, text string) {
		t.Helper()
		fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(path, decision(1))
	write(path+".1", decision(2))
	if err := s.Files(path, 0); err != nil {
		t.Error(err)
	}
	write(path+".10", "x\n")
	if err := s.Files(path, 0); err == nil || !strings.Contains(err.Error(), "audit.log.10: line 1: x\nis no line of the audit log") {
		t.Errorf("a rotated file: %v", err)
	}
}
