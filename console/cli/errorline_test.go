package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

// TestErrorIsOneLine: any error is one line without control characters.
func TestErrorIsOneLine(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
		code int
	}{
		{console.Refuse(404, "no pod \x1b[2J\u202eshop\nnamegate: all is well"), "namegate: no pod \\x1b[2J\\u202eshop namegate: all is well\n", console.ExitUnknown},
		{errors.Join(errors.New("read a.log"), errors.New("read b.log")), "namegate: read a.log read b.log\n", console.ExitNo},
	} {
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return c.err }}
		cmd.SetArgs(nil)
		var errs bytes.Buffer
		if code := Execute(context.Background(), cmd, &errs); code != c.code || errs.String() != c.want {
			t.Errorf("%d %q, want %d %q", code, errs.String(), c.code, c.want)
		}
	}
	var errs bytes.Buffer
	cmd := New("v1")
	cmd.SetArgs([]string{"stauts"})
	if Execute(context.Background(), cmd, &errs); bytes.Count(errs.Bytes(), []byte("\n")) != 1 {
		t.Errorf("%q", errs.String())
	}
}
