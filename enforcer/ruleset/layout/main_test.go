package layout

import (
	"os"
	"testing"

	"github.com/namegate/namegate/testkit/netns"
	"github.com/namegate/namegate/testkit/short"
)

func TestMain(m *testing.M) {
	netns.Parallel()
	os.Exit(short.Main(m, short.Lists{Long: []string{"TestAuditedIsLoggedOnceAndPasses", "TestAuditedScanDoesNotSuppressLogs", "TestChangesAfterARival", "TestListingsWhileOthersCommit"}}))
}
