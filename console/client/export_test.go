package client

import (
	"context"
	"net/url"

	"github.com/namegate/namegate/console"
)

// GatherWithin is Gather with other bounds of an answer and of all.
func GatherWithin[T any](ctx context.Context, agents []Agent, path string, each, all int64) ([]T, []*console.Failure, error) {
	return gather[T](ctx, agents, path, url.Values{}, &budget{each: each, all: all})
}
