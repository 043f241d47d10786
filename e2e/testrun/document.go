package main

import (
	"fmt"
	"os"
	"strings"
)

// write replaces the rows of verbs in a document: those that table returns, found by their first
// column.
func write(document string, all []*tally) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	next := string(text)
	for _, t := range all {
		if next, err = replace(next, t); err != nil {
			return fmt.Errorf("write the figures into %s: %w", document, err)
		}
	}
	if err := os.WriteFile(document, []byte(next), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}

// replace returns a text with the row of a verb replaced.
func replace(text string, t *tally) (string, error) {
	row := table([]*tally{t})
	key, _, _ := strings.Cut(row[2:], " |")
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if cells := strings.Split(line, "|"); len(cells) == 6 && strings.TrimSpace(cells[1]) == key {
			lines[i] = row
			return strings.Join(lines, ""), nil
		}
	}
	return "", fmt.Errorf("no row of four cells begins with %s; add one", key)
}
