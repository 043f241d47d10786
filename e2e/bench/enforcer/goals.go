package main

import "github.com/namegate/namegate/e2e/bench/ground"

// goals are the targets, as far as this benchmark measures them.
var goals = []ground.Goal{
	{Figure: "flow.new_per_s", Peer: noRules, State: podsState(110), Least: 0.98},
}
