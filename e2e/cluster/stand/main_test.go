package main

import (
	"errors"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"init"}, {"init", "a", "b"}} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v, want the usage", args, err)
		}
	}
	if err := proxy(t.Context(), nil, "ipvs"); !errors.Is(err, errUsage) {
		t.Errorf("a mode that no cluster runs: %v, want the usage", err)
	}
}
