package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Exit codes of the commands for people.
const (
	ExitNo          = 1 // the answer is no, or something failed that has no code of its own
	ExitUsage       = 2 // the command line is wrong
	ExitUnreachable = 3 // no agent answers
	ExitForbidden   = 4 // the caller has no access
	ExitUnknown     = 5 // there is no such pod, or more than one
)

// Refusal is an agent's answer that is none.
type Refusal struct {
	Status  int    `json:"-"`     // of HTTP
	Message string `json:"error"` // the error, and its correction
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Refuse returns a refusal with a formatted message.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Answer answers a request with the refusal.
func (r *Refusal) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(r)
}

// Unreachable says that an agent cannot be asked.
type Unreachable struct{ Err error }

// Error returns the failed action and the correction.
func (u *Unreachable) Error() string { return u.Err.Error() }

// Unwrap returns the reason.
func (u *Unreachable) Unwrap() error { return u.Err }

// Misused says that the command line is wrong.
type Misused struct{ Err error }

// Error returns the error.
func (m *Misused) Error() string { return m.Err.Error() }

// Unwrap returns the reason.
func (m *Misused) Unwrap() error { return m.Err }

// Answered ends a command that has said everything, and whose answer is not yes.
type Answered struct{ Code int }

// Error is unused: the message was already printed.
func (a *Answered) Error() string { return fmt.Sprintf("exit code %d", a.Code) }

// ExitCode returns the exit code for a command's error, 0 for nil.
func ExitCode(err error) int {
	var answered *Answered
	var refusal *Refusal
	var away *Unreachable
	var misused *Misused
	switch {
	case err == nil:
		return 0
	case errors.As(err, &answered):
		return answered.Code
	case errors.As(err, &misused):
		return ExitUsage
	case errors.As(err, &away):
		return ExitUnreachable
	case errors.As(err, &refusal):
		switch refusal.Status {
		case http.StatusBadRequest:
			return ExitUsage
		case http.StatusUnauthorized, http.StatusForbidden:
			return ExitForbidden
		case http.StatusNotFound, http.StatusConflict:
			return ExitUnknown
		}
	}
	return ExitNo
}

// Failure is an agent that could not be asked, or refused.
type Failure struct {
	Node string
	Err  error
}

// Error returns the error, with the node if there are several.
func (f *Failure) Error() string {
	if f.Node == "" {
		return f.Err.Error()
	}
	return f.Node + ": " + f.Err.Error()
}

// Unwrap returns the error.
func (f *Failure) Unwrap() error { return f.Err }
