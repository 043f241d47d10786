package lab

import (
	"os"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// A line of the agent's log that is not of the published schema fails the test that
// stops the agent or reads the log, and is shown.
func TestCheckAudit(t *testing.T) {
	const whole = `{"v":1,"kind":"flow","time":"2026-05-01T12:00:00.000000Z","node":"node-1","verdict":"denied","pod":{"namespace":"shop","name":"p","ip":"10.1.0.5"},` +
		`"protocol":"tcp","destination":{"address":"192.0.2.1","port":443},"reason":"address","count":1}` + "\n"
	a := &Agent{Dir: t.TempDir()}
	if err := a.CheckAudit(); err != nil {
		t.Errorf("an agent that logs nothing: %v", err)
	}
	for name, c := range map[string]struct {
		text string
		good bool
	}{
		"whole lines":   {whole + whole, true},
		"unknown field": {whole + strings.Replace(whole, `"reason"`, `"hint":"x","reason"`, 1), false},
		"missing field": {whole + strings.Replace(whole, `"count":1`, `"count":0`, 1), false},
		"no JSON":       {whole + "oops\n", false},
	} {
		fatal.If(t, os.WriteFile(a.path("audit.log"), []byte(c.text), 0o600))
		err := a.CheckAudit()
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if !c.good && !strings.Contains(err.Error(), "audit.log: line 2: ") {
			t.Errorf("%s: the line is not named: %v", name, err)
		}
		if lines, err := a.AuditLines(); (err == nil) != c.good || c.good && len(lines) != 2 {
			t.Errorf("%s: read %d lines, %v", name, len(lines), err)
		}
	}
}
