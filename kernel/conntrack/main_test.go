package conntrack_test

import (
	"os"
	"testing"

	"github.com/namegate/namegate/e2e/netns"
)

func TestMain(m *testing.M) {
	netns.Parallel()
	os.Exit(m.Run())
}
