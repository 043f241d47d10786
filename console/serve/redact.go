package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/namegate/namegate/console/explain"
)

// withoutNames takes the names out of a flow's line that only pods asked for whose
// namespace may not be seen; nothing is left of a line where that cannot be done.
func withoutNames(line []byte, sees func(string) bool) []byte {
	return rewrite(line, func(fields map[string]json.RawMessage) bool {
		var names, rest []json.RawMessage
		if json.Unmarshal(fields["names"], &names) != nil {
			return false
		}
		for _, n := range names {
			var by struct {
				Pod string `json:"pod"`
			}
			if json.Unmarshal(n, &by) != nil {
				return false
			}
			if by.Pod == "" || seesPod(refOf(by.Pod), sees) {
				rest = append(rest, n)
			}
		}
		delete(fields, "names")
		if len(rest) > 0 {
			fields["names"], _ = json.Marshal(rest)
		}
		return true
	})
}

// namesCluster tells whether a line names a cluster policy that may not be read, in a field
// "policy" or in the list "policies". It is asked of every line, and reads no JSON.
func namesCluster(line []byte, sees func(standard bool) bool) bool {
	for rest := line; ; {
		_, value, found := bytes.Cut(rest, []byte(`"polic`))
		if !found {
			return false
		}
		rest = value
		end := []byte(`"`)
		if list, is := bytes.CutPrefix(value, []byte(`ies":["`)); is {
			value, end = list, []byte(`"]`)
		} else if one, is := bytes.CutPrefix(value, []byte(`y":"`)); is {
			value = one
		} else {
			continue
		}
		value, _, _ = bytes.Cut(value, end)
		for id := range bytes.SplitSeq(value, []byte(`","`)) {
			if hiddenPolicy(string(id), sees) {
				return true
			}
		}
	}
}

// withoutCluster takes the names of cluster policies that may not be read out of a line:
// "a cluster policy (Admin)" stands where they stood.
func withoutCluster(line []byte, sees func(standard bool) bool) []byte {
	return rewrite(line, func(fields map[string]json.RawMessage) bool {
		tier := ""
		_ = json.Unmarshal(fields["tier"], &tier)
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
	})
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

// rewrite returns a line with other fields, nothing where change cannot be done. What is
// left begins as the log's lines do: people look for that.
func rewrite(line []byte, change func(fields map[string]json.RawMessage) bool) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || !change(fields) {
		return nil
	}
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
