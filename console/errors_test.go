package console

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
)

// TestExitCode: the codes are an interface for scripts.
func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{Refuse(http.StatusServiceUnavailable, "x"), 1},
		{&Answered{Code: ExitNo}, 1},
		{&Misused{errors.New("x")}, 2},
		{Refuse(http.StatusBadRequest, "x"), 2},
		{&Unreachable{errors.New("x")}, 3},
		{&Answered{Code: ExitUnreachable}, 3},
		{Refuse(http.StatusUnauthorized, "x"), 4},
		{Refuse(http.StatusForbidden, "x"), 4},
		{Refuse(http.StatusNotFound, "x"), 5},
		{Refuse(http.StatusConflict, "x"), 5},
		{fmt.Errorf("wrapped: %w", &Failure{"node-1", &Unreachable{errors.New("x")}}), 3},
		{errors.Join(nil, &Answered{Code: 5}), 5},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%#v: %d, want %d", c.err, got, c.want)
		}
	}
}
