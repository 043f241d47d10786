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
		"TestOpenedOnTheWayOnTheKernel", "TestOrderedRulesOfAComingPod", "TestOrderedRulesEqualEvaluate", "TestPathOnTheKernel", "TestTheNodesPacketsEqualEvaluate", "TestARivalAfterEveryStep", "TestARetryAfterARestartKeepsHomes"}}))
}
