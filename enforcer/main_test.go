package enforcer

import (
	"os"
	"testing"

	"github.com/namegate/namegate/testkit/netns"
	"github.com/namegate/namegate/testkit/short"
)

func TestMain(m *testing.M) {
	netns.Parallel()
	os.Exit(short.Main(m, short.Lists{Long: []string{
		"TestARestartKeepsWhatOrderedRulesAdmitted", "TestConnectionsOutliveStandardRules", "TestDenyOutlivesAcceptWithoutAnAgent", "TestLostOrderedRules", "TestLostTables",
		"TestNamesOnTheKernel", "TestOpenedOnTheWayOnTheKernel", "TestOrderedNamesOnTheKernel", "TestOrderedRulesOfAComingPod", "TestOrderedRulesOnTheKernel", "TestOrderedRulesEqualEvaluate", "TestPathOnTheKernel", "TestTheNodesPacketsEqualEvaluate", "TestARivalAfterEveryStep", "TestARetryAfterARestartKeepsHomes"}}))
}
