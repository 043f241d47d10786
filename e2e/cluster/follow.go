package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Follow runs kubectl as the cluster's administrator and calls line with each line
// of its standard output as it comes, until ctx ends, which is no error, or kubectl
// does.
func (c *Cluster) Follow(ctx context.Context, line func(string), args ...string) error {
	cmd := c.client(ctx, "kubectl", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line(lines.Text())
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
