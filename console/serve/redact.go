package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/explain"
)

// redact returns a line, which was read as l, as the caller may see it: without the names that only pods asked for
// whose namespace may not be seen, and with "a cluster policy (Admin)" in place of a policy that may not be read.
// Nothing is left of a line where that cannot be done. What is left begins as the log's lines do: people look for that.
func redact(line []byte, l *audit.Line, sees func(string) bool, seesCluster func(standard bool) bool) []byte {
	var fields, names, rest = map[string]json.RawMessage(nil), []json.RawMessage(nil), []json.RawMessage(nil)
	others := func(n audit.LineName) bool { return n.Pod != "" && !seesPod(refOf(n.Pod), sees) }
	if slices.ContainsFunc(l.Names, others) {
		if json.Unmarshal(line, &fields) != nil || json.Unmarshal(fields["names"], &names) != nil || len(names) != len(l.Names) {
			return nil
		}
		for i, n := range l.Names {
			if !others(n) {
				rest = append(rest, names[i])
			}
		}
		l.Names = slices.DeleteFunc(l.Names, others)
		if delete(fields, "names"); len(rest) > 0 {
			fields["names"], _ = json.Marshal(rest)
		}
	}
	if namesCluster(l, seesCluster) && (fields == nil && json.Unmarshal(line, &fields) != nil || !hideFields(fields, l.Tier, seesCluster)) {
		return nil
	}
	if fields == nil {
		return line
	}
	return written(fields)
}

// namesCluster tells whether a line names a cluster policy that may not be read.
func namesCluster(l *audit.Line, sees func(standard bool) bool) bool {
	hidden := func(id string) bool { return hiddenPolicy(id, sees) }
	match := func(m audit.LineMatch) bool { return hidden(m.Policy) }
	return l.Policy != "" && hidden(l.Policy) || slices.ContainsFunc(l.Policies, hidden) || slices.ContainsFunc(l.Matches, match) ||
		slices.ContainsFunc(l.Names, func(n audit.LineName) bool { return n.Match != nil && match(*n.Match) })
}

// hideFields takes the names of cluster policies that may not be read out of the fields of a line, and tells whether
// it could.
func hideFields(fields map[string]json.RawMessage, tier string, sees func(standard bool) bool) bool {
	for key, raw := range fields {
		var value any
		numbers := json.NewDecoder(bytes.NewReader(raw))
		numbers.UseNumber()
		if numbers.Decode(&value) != nil {
			return false
		}
		text, err := json.Marshal(hideCluster(key, value, tier, sees))
		if err != nil {
			return false
		}
		fields[key] = text
	}
	if id := ""; json.Unmarshal(fields["policy"], &id) == nil && id == explain.Hidden(tier) {
		for _, key := range ofRule {
			delete(fields, key)
		}
	}
	return true
}

// ofRule are the fields beside "policy" that tell of the policy.
var ofRule = []string{"path", "match", "rule"}

// hideCluster returns the value of a field without the names of cluster policies that may not
// be read. An object with such a policy loses what else tells of it.
func hideCluster(key string, value any, tier string, sees func(standard bool) bool) any {
	switch v := value.(type) {
	case string:
		if (key == "policy" || key == "policies") && hiddenPolicy(v, sees) {
			return explain.Hidden(tier)
		}
	case []any:
		for i := range v {
			v[i] = hideCluster(key, v[i], tier, sees)
		}
		if key == "policies" {
			return slices.Compact(v) // of which several may have no name
		}
	case map[string]any:
		own, _ := v["tier"].(string)
		for k := range v {
			v[k] = hideCluster(k, v[k], own, sees)
		}
		if v["policy"] == explain.Hidden(own) {
			for _, k := range ofRule {
				if _, has := v[k]; has {
					v[k] = ""
				}
			}
		}
	}
	return value
}

// written writes the fields of a line.
func written(fields map[string]json.RawMessage) []byte {
	var text []byte
	for _, key := range lineBegin {
		if value, has := fields[key]; has {
			text = fmt.Appendf(text, ",%q:%s", key, value)
			delete(fields, key)
		}
	}
	others, err := json.Marshal(fields)
	if err != nil || len(text) == 0 {
		return nil
	}
	text[0] = '{'
	if len(fields) > 0 {
		others[0] = ','
	} else {
		others = others[1:]
	}
	return append(append(text, others...), '\n')
}

// lineBegin are the fields with which each line begins.
var lineBegin = []string{"v", "kind", "time"}
