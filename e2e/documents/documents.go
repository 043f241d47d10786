// Package documents reads the blocks and the commands of Markdown documents for the tests that
// run them.
package documents

import "strings"

// Block is a fenced block of a document.
type Block struct {
	Language string
	// File is the name behind the language, "" for a block that is no file.
	File string
	Text string // with its last newline
}

// Blocks returns the fenced blocks of a document, in order.
func Blocks(document string) []Block {
	var out []Block
	parts := strings.Split("\n"+document, "\n```")
	for i := 1; i < len(parts); i += 2 {
		info, text, _ := strings.Cut(parts[i], "\n")
		b := Block{Text: text + "\n"}
		b.Language, b.File, _ = strings.Cut(info, " ")
		out = append(out, b)
	}
	return out
}

// Outcome is how a command ends.
type Outcome int

// The outcomes. A comment that begins with "rejected", "denied", "exit code 1" or "follows" tells the last four.
const (
	Succeeds Outcome = iota
	Rejected         // the connection of the command is rejected: it fails
	Denied           // the same, or its packets get no answer
	Negative         // the command ends with exit code 1
	Follows          // the command prints something, and goes on until Ctrl-C
)

// Command is a command line of a block of the language sh.
type Command struct {
	Line string // without its comment
	Ends Outcome
}

// Commands returns the commands of a document's sh blocks, in order.
func Commands(document string) []Command {
	var out []Command
	for _, b := range Blocks(document) {
		if b.Language != "sh" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", "")) {
			line, comment, _ := strings.Cut(" "+strings.TrimSpace(line), " #")
			c := Command{Line: strings.TrimSpace(line)}
			switch comment = strings.TrimSpace(comment); {
			case c.Line == "":
				continue
			case strings.HasPrefix(comment, "rejected"):
				c.Ends = Rejected
			case strings.HasPrefix(comment, "denied"):
				c.Ends = Denied
			case strings.HasPrefix(comment, "exit code 1"):
				c.Ends = Negative
			case strings.HasPrefix(comment, "follows"):
				c.Ends = Follows
			}
			out = append(out, c)
		}
	}
	return out
}
