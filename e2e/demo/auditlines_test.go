package main

import (
	"encoding/json"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

const allowedLine = `{"v":1,"kind":"dns","time":"2026-05-01T12:00:00.250000Z","node":"node-1","verdict":"allowed",
"pod":{"namespace":"shop","name":"client","ip":"10.1.0.10"},"question":{"name":"www.example.org","type":"A","class":"IN"},
"matches":[{"policy":"shop/allow-web","path":"spec.egress[0].matches[0]","match":"*.example.org"}],
"answers":[{"address":"198.51.100.10","granted":true,"grants":[{"ports":"tcp/80","until":"2026-05-01T12:06:00.250000Z"}]}]}`

const unmatchedLine = `{"v":1,"kind":"dns","time":"2026-05-01T12:00:01.000000Z","verdict":"unmatched",
"pod":{"namespace":"shop","name":"client"},"question":{"name":"other.test","type":"A"},
"answers":[{"address":"203.0.113.30","granted":false}]}`

const deniedLine = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:02.000000Z","verdict":"denied","pod":{"namespace":"shop","name":"client"},
"protocol":"tcp","destination":{"address":"203.0.113.30","port":80},"names":[{"name":"other.test"},{"name":"older.test"}],"reason":"unmatched","policies":["shop/allow-web"]}`

const pingLine = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:03.000000Z","verdict":"denied","pod":{"namespace":"shop","name":"client"},
"protocol":"icmp","destination":{"address":"203.0.113.31"},"reason":"address"}`

func parsed(t *testing.T, s string) auditLine {
	t.Helper()
	var m map[string]any
	fatal.If(t, json.Unmarshal([]byte(s), &m))
	return readLine(m)
}

func TestAuditLineInWords(t *testing.T) {
	for in, want := range map[string]string{
		allowedLine:   "12:00:00  allowed    shop/client     www.example.org  A     shop/allow-web   198.51.100.10 tcp/80 until 12:06:00",
		unmatchedLine: "12:00:01  unmatched  shop/client     other.test       A     no policy        203.0.113.30",
		deniedLine:    "12:00:02  denied     shop/client     other.test       tcp   shop/allow-web   203.0.113.30 port 80",
		pingLine:      "12:00:03  denied     shop/client     no name          icmp  no policy        203.0.113.31",
		`{}`:          "  " + "           /                                      no policy        ",
	} {
		if got := parsed(t, in).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestMissingDecisions(t *testing.T) {
	all := []auditLine{parsed(t, allowedLine), parsed(t, unmatchedLine)}
	missing := missingOf(all)
	want := []string{
		"www.example.org allowed for shop/neighbour by shop/allow-web",
		"feed.example.com allowed for shop/client by shop/allow-feed",
	}
	if len(missing) != len(want) || missing[0] != want[0] || missing[1] != want[1] {
		t.Errorf("missing %q, want %q", missing, want)
	}
	other := all[0]
	other.policies = []string{"shop/other"}
	if wanted[0].is(other) {
		t.Error("a line of another policy counts")
	}
}
