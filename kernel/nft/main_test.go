package nft

import (
	"os"
	"testing"

	"github.com/namegate/namegate/e2e/short"
)

func TestMain(m *testing.M) {
	os.Exit(short.Main(m, "TestAuditedIsLoggedOnceAndPasses", "TestAuditedScanDoesNotSuppressLogs", "TestChangesAfterARival", "TestDispatchEqualsWalk", "TestListingsWhileOthersCommit"))
}
