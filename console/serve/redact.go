package serve

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/explain"
)

// redact returns a line, which was read as l, as the caller may see it: without sources and names that only pods asked
// for whose namespace may not be seen, and with "a cluster policy (Admin)" in place of a policy that may not be read.
// Nothing is left of a line where that cannot be done. What is left begins as the log's lines do: people look for that.
func redact(line []byte, l *audit.Line, sees func(string) bool, seesCluster func(id string) bool) []byte {
	changed := false
	hide := func(id, tier string) string {
		if hiddenPolicy(id, seesCluster) {
			id, changed = explain.Hidden(tier), true
		}
		return id
	}
	hideMatch := func(m *audit.LineMatch) {
		if id := hide(m.Policy, ""); id != m.Policy {
			m.Policy, m.Path, m.Match = id, "", ""
		}
	}
	if s := l.Source; s != nil && s.Pod != "" && !seesPod(refOf(s.Pod), sees) {
		s.Pod, changed = "", true
	}
	var shown []int // of the names
	for i, n := range l.Names {
		if n.Pod != "" && !seesPod(refOf(n.Pod), sees) {
			changed = true
			continue
		}
		if shown = append(shown, i); n.Match != nil {
			hideMatch(n.Match)
		}
	}
	for i := range l.Matches {
		hideMatch(&l.Matches[i])
	}
	for i, id := range l.Policies {
		l.Policies[i] = hide(id, l.Tier)
	}
	if id := l.Policy; id != "" {
		if l.Policy = hide(id, l.Tier); l.Policy != id {
			l.Rule = ""
		}
	}
	if !changed {
		return line
	}
	var fields map[string]json.RawMessage
	var names, kept []map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields["names"] != nil && json.Unmarshal(fields["names"], &names) != nil || len(names) != len(l.Names) {
		return nil
	}
	for _, i := range shown {
		if m := l.Names[i].Match; m != nil {
			names[i]["match"], _ = json.Marshal(m)
		}
		kept = append(kept, names[i])
	}
	replace(fields, "names", kept, len(kept) > 0)
	replace(fields, "source", l.Source, l.Source != nil)
	replace(fields, "matches", l.Matches, len(l.Matches) > 0)
	replace(fields, "policies", slices.Compact(l.Policies), len(l.Policies) > 0) // of which several may have no name
	replace(fields, "policy", l.Policy, l.Policy != "")
	replace(fields, "rule", l.Rule, l.Rule != "")
	return written(fields)
}

// replace sets a field of a line, or leaves it out.
func replace(fields map[string]json.RawMessage, key string, value any, there bool) {
	if delete(fields, key); there {
		fields[key], _ = json.Marshal(value) // strings and truth values alone
	}
}

// written writes the fields of a line.
func written(fields map[string]json.RawMessage) (text []byte) {
	for _, key := range []string{"v", "kind", "time"} {
		text = fmt.Appendf(text, ",%q:%s", key, fields[key])
		delete(fields, key)
	}
	others, err := json.Marshal(fields)
	if text[0], others[0] = '{', ','; err != nil || len(fields) == 0 {
		return nil
	}
	return append(append(text, others...), '\n')
}
