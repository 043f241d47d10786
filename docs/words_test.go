package docs

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// privateWords are metaphors for which the field has a term, with that term. They must
// not come back as a part of an identifier, or as a word of a comment or a message.
var privateWords = map[string]string{
	"askers": "clients", "asker": "client", "born": "created, stored or started", "burden": "cost", "coverer": "coverage checker", "crew": "worker pool", "debt": "recheck set",
	"debts": "recheck set", "departing": "predecessor", "divert": "fall back", "doubtful": "uncertain", "filler": "cache writer", "glance": "check",
	"heat": "hit counter", "herald": "event dedup", "hurry": "shorten deadlines", "hush": "drop replies", "inheritance": "recovered state", "inherited": "recovered",
	"inlet": "receive batch", "ledger": "tracker", "mend": "repair", "mended": "repaired", "mends": "repairs", "outbox": "batch writer", "overdue": "late", "owe": "recheck",
	"owed": "to be rechecked", "owes": "recheck", "parcel": "reply batch", "readied": "staged", "rejudge": "recheck", "repeater": "reply logger", "rider": "waiter", "roster": "index",
	"shelf": "store", "sieve": "filter", "stray": "stale", "taker": "responder", "trunk": "socket pool",
	"trunks": "socket pools", "wishes": "watched Services",
}

// pronouns stand in comments and messages where the noun should.
var pronouns = map[string]string{"nobody": "no pod, no client, …", "whoever": "the client, the program, …", "whomever": "any program"}

// messageWords are the words of messages for users alone that have a plain term.
var messageWords = map[string]string{
	"anybody": "any client, any pod, …", "everybody": "every client, …", "somebody": "another user, …",
	"tell": "report, show or distinguish", "telling": "reporting", "tells": "reports, shows or has", "told": "sent, known or distinguished",
}

// messagePhrases are private phrases of messages.
var messagePhrases = map[string]string{"asked any more": "is cancelled, is removed", "knows whether": "it is unknown whether", "is mended": "is fixed"}

var wordPattern = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

// TestWords: identifiers, comments and messages of the repository have the field's terms.
func TestWords(t *testing.T) {
	root := ".."
	messages := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "words_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checkWords(t, path, text)
		if isProduct(path) {
			messages += checkMessages(t, path, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if messages < 1000 {
		t.Errorf("only %d messages were found", messages)
	}
}

// checkWords reads the identifiers and comments of a file.
func checkWords(t *testing.T, path string, text []byte) {
	t.Helper()
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.IDENT, token.COMMENT:
			for _, word := range wordPattern.FindAllString(lit, -1) {
				word = strings.ToLower(word)
				better, private := privateWords[word]
				if !private && tok == token.COMMENT {
					better, private = pronouns[word]
				}
				if private {
					t.Errorf("%s: %q: write %s", files.Position(pos), word, better)
				}
			}
		}
	}
}

// isProduct tells whether a file is part of the programs: users read its messages.
func isProduct(path string) bool {
	for _, tests := range []string{"../e2e/", "../testkit/", "../tools/"} {
		if strings.HasPrefix(path, tests) {
			return false
		}
	}
	return !strings.HasSuffix(path, "_test.go")
}

// checkMessages reads the string literals of a file that have three words or more, and returns
// how many these are. Shorter ones are keys and names.
func checkMessages(t *testing.T, path string, text []byte) (messages int) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return 0
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		message, err := strconv.Unquote(lit.Value)
		if words := wordPattern.FindAllString(message, -1); err == nil && len(words) >= 3 {
			messages++
			for _, problem := range wordsToAvoid(message, words) {
				t.Errorf("%s: %s, in %s", files.Position(lit.Pos()), problem, lit.Value)
			}
		}
		return true
	})
	return messages
}

func wordsToAvoid(message string, words []string) (problems []string) {
	for _, word := range words {
		for _, list := range []map[string]string{privateWords, pronouns, messageWords} {
			if better, private := list[strings.ToLower(word)]; private {
				problems = append(problems, strconv.Quote(word)+": write "+better)
			}
		}
	}
	for phrase, better := range messagePhrases {
		if strings.Contains(message, phrase) {
			problems = append(problems, strconv.Quote(phrase)+": write "+better)
		}
	}
	return problems
}

// TestMessagesAreRead: a message with a private word, a pronoun or a phrase is found.
func TestMessagesAreRead(t *testing.T) {
	for message, found := range map[string]int{
		"the policy selects no pod until it is mended":    2,
		"nobody knows whether it has several":             2,
		"the other server was told nothing":               1,
		"a query of it is not asked any more, since then": 1,
		"the policy selects no pod until it is fixed":     0,
	} {
		if got := wordsToAvoid(message, wordPattern.FindAllString(message, -1)); len(got) != found {
			t.Errorf("%q: %q", message, got)
		}
	}
}
