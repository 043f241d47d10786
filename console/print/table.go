package print

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/namegate/namegate/console"
)

// colour is the colour of a word on a terminal.
type colour string

// The colours, as SGR sequences of ECMA-48.
const (
	plain  colour = ""
	bold   colour = "\x1b[1m"
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	reset         = "\x1b[0m"
)

// verdictColours are the colours of verdicts.
var verdictColours = map[string]colour{
	"allowed": green, "allowed-once-asked": green, "checked": green, "renewed": green,
	"unmatched": yellow, "blocked": yellow, "would-deny": yellow, "would-allow": yellow, "elsewhere": yellow,
	"denied": red, "refused": red, "failed": red,
}

// cell is one word of a table.
type cell struct {
	text   string
	colour colour
}

// cells makes plain ones.
func cells(texts ...string) []cell {
	out := make([]cell, len(texts))
	for i, t := range texts {
		out[i].text = t
	}
	return out
}

// table is rows below a head.
type table struct {
	Head []string // none: no line for it
	Rows [][]cell
}

// add appends a row.
func (t *table) add(row ...cell) { t.Rows = append(t.Rows, row) }

// print writes the table, its columns as wide as need be, two spaces apart.
func (t *table) print(w io.Writer, colour bool) error {
	rows := t.Rows
	if len(t.Head) > 0 {
		head := cells(t.Head...)
		for i := range head {
			head[i].colour = bold
		}
		rows = append([][]cell{head}, rows...)
	}
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(shown(c.text)))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, c := range row {
			text := shown(c.text)
			b.WriteString(c.colour.paint(text, colour))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paint returns the text in the colour.
func (c colour) paint(text string, colour bool) string {
	if !colour || c == plain || text == "" {
		return text
	}
	return string(c) + text + reset
}

// shown returns the text as it is safe for a terminal and stays in its line: what
// would move the cursor or change its colours is spelled out. Texts come from
// policies and pods.
func shown(s string) string {
	if s == "" {
		return "-"
	}
	return console.Safe(s)
}

// safeLines is safe for a text of several lines.
func safeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = console.Safe(lines[i])
	}
	return strings.Join(lines, "\n")
}
