package enforcer

import (
	"os"
	"testing"

	"github.com/namegate/namegate/e2e/short"
)

func TestMain(m *testing.M) {
	os.Exit(short.Main(m,
		"TestARestartKeepsWhatOrderedRulesAdmitted", "TestConnectionsOutliveStandardRules", "TestDenyOutlivesAcceptWithoutAnAgent", "TestLostOrderedRules", "TestLostTables",
		"TestOrderedMatrix", "TestOrderedNamesOnTheKernel", "TestOrderedRulesEqualEvaluate", "TestPathOnTheKernel", "TestTheNodesPacketsEqualEvaluate", "TestARivalAfterEveryStep", "TestARetryAfterARestartKeepsHomes"))
}
