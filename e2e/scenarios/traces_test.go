package scenarios

import "strings"

// traces returns the first line of a program's print that shows something of ours.
func traces(out string) string {
	for line := range strings.Lines(out) {
		for _, word := range []string{"NAMEGATE", "namegate", "NG4-", "NG6-", "169.254.20.", "fd5c:7a1e:93b4", "mark=64"} {
			if strings.Contains(line, word) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}
