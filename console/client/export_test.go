package client

import (
	"context"
	"net/url"

	"github.com/namegate/namegate/console"
)

// PassWithin is EachAnswer with another bound of all answers.
func PassWithin(ctx context.Context, agents []Agent, path string, all int64) []error {
	return eachAnswer(ctx, agents, path, func(int) url.Values { return nil }, &budget{each: all, all: all, passing: true}, func(int, *any) {})
}

// GatherWithin is Gather with other bounds of an answer and of all.
func GatherWithin[T any](ctx context.Context, agents []Agent, path string, each, all int64) ([]T, []*console.Failure, error) {
	return gather[T](ctx, agents, path, url.Values{}, &budget{each: each, all: all})
}
