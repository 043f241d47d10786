package docs

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// privateWords are metaphors for which the field has a term, with that term. They must
// not come back as a part of an identifier or as a word of a comment.
var privateWords = map[string]string{
	"askers": "clients", "asker": "client", "born": "created, stored or started", "crew": "worker pool", "debt": "recheck set", "debts": "recheck set",
	"departing": "predecessor", "doubtful": "uncertain", "glance": "check", "herald": "event dedup", "hush": "drop replies", "inheritance": "recovered state",
	"inlet": "receive batch", "ledger": "tracker", "mend": "repair", "mended": "repaired", "mends": "repairs", "outbox": "batch writer", "overdue": "late", "owe": "recheck",
	"owed": "to be rechecked", "owes": "recheck", "parcel": "reply batch", "rejudge": "recheck", "rider": "waiter", "roster": "index",
	"shelf": "store", "sieve": "filter", "stranger": "unknown source", "strangers": "unknown sources", "trunk": "socket pool", "wishes": "watched Services",
}

// pronouns stand in comments where the noun should.
var pronouns = map[string]string{"nobody": "no pod, no client, …", "whoever": "the client, the program, …", "whomever": "any program"}

var wordPattern = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

// TestWords: identifiers and comments of the repository have the field's terms.
func TestWords(t *testing.T) {
	root := ".."
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
		return checkWords(t, path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkWords(t *testing.T, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return nil
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
