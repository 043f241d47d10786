package webtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Get sends a request to the page as its scripts do. The address is that of `namegate ui`, with the
// token; the path is as "/api/session". The caller closes the body.
func Get(ctx context.Context, client *http.Client, address, path string) (*http.Response, error) {
	root, token, with := strings.Cut(strings.TrimSpace(address), "/#/?token=")
	if !with {
		return nil, fmt.Errorf("the address %q of the page has no token", address)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return client.Do(req)
}
