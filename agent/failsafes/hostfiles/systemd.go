package hostfiles

import (
	"path"
	"strings"
)

// systemdFolders are the folders of systemd's files, the one that counts most first
// (systemd.unit(5)).
var systemdFolders = []string{"/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"}

// setting is a line KEY=VALUE of a file of systemd.
type setting struct {
	section, key, value string
	file                string
}

// systemd returns the settings of a file of systemd and of its drop-ins, in the order in
// which they count. The name is relative to the folders, such as "resolved.conf" or
// "system/kubelet.service".
func (r Root) systemd(name string) (settings []setting, err error) {
	var mains, dropIns []string
	for _, folder := range systemdFolders {
		mains = append(mains, path.Join(folder, name))
		dropIns = append(dropIns, path.Join(folder, name+".d"))
	}
	main, text, err := r.first(mains...)
	if err != nil {
		return nil, err
	}
	settings = parseSettings(main, text)
	files, err := r.layered("*.conf", dropIns...)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, _, err := r.optional(file)
		if err != nil {
			return nil, err
		}
		settings = append(settings, parseSettings(file, text)...)
	}
	return settings, nil
}

// parseSettings reads the syntax of systemd.syntax(7).
func parseSettings(file, text string) (settings []setting) {
	section := ""
	for _, line := range logicalLines(text) {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			settings = append(settings, setting{section, strings.TrimSpace(key), strings.TrimSpace(value), file})
		}
	}
	return settings
}

// logicalLines returns the lines without comments and empty ones, with continued lines joined.
func logicalLines(text string) (lines []string) {
	joined := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // also between continued lines
		}
		if head, ok := strings.CutSuffix(line, `\`); ok {
			joined += head + " "
			continue
		}
		if line = strings.TrimSpace(joined + line); line != "" {
			lines = append(lines, line)
		}
		joined = ""
	}
	if joined = strings.TrimSpace(joined); joined != "" {
		lines = append(lines, joined)
	}
	return lines
}

// listOf returns the words of a list setting; an empty value resets it.
func listOf(settings []setting, section, key string) (words []string) {
	for _, s := range settings {
		switch {
		case s.section != section || s.key != key:
		case s.value == "":
			words = nil
		default:
			words = append(words, strings.Fields(s.value)...)
		}
	}
	return words
}

// lastOf returns the value that counts of a setting, "" for none.
func lastOf(settings []setting, section, key string) (value string) {
	for _, s := range settings {
		if s.section == section && s.key == key {
			value = s.value
		}
	}
	return value
}

// splitWords splits at white space outside of quotes, and removes the quotes and backslashes,
// as systemd and shells do for simple words.
func splitWords(text string) (words []string) {
	var word strings.Builder
	quote, in := byte(0), false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			in = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if in {
		words = append(words, word.String())
	}
	return words
}
