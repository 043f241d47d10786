package nflog

import (
	"os"
	"testing"

	"github.com/namegate/namegate/testkit/netns"
)

func TestMain(m *testing.M) {
	netns.Parallel()
	os.Exit(m.Run())
}
