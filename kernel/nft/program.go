package nft

import (
	"context"
	"strings"

	"sigs.k8s.io/knftables"
)

// program is the program nft. Its message repeats the lines that it refuses, which may be all
// elements of a set.
type program struct{ knftables.Interface }

func (p program) Run(ctx context.Context, tx *knftables.Transaction) error {
	if err := p.Interface.Run(ctx, tx); err != nil {
		return refusal{err}
	}
	return nil
}

// refusal is an error with the beginning of its text.
type refusal struct{ error }

// refusalBytes bounds the text.
const refusalBytes = 500

func (r refusal) Error() string {
	text := strings.TrimSpace(r.error.Error())
	if len(text) > refusalBytes {
		text = strings.ToValidUTF8(text[:refusalBytes], "") + "..."
	}
	return text
}

func (r refusal) Unwrap() error { return r.error }
