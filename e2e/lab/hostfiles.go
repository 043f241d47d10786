package lab

import (
	"os"
	"path/filepath"
)

// HostFiles writes files, by their paths without the first slash, into a folder that stands for
// the root of a node: labs share the machine's files.
func HostFiles(root string, files map[string]string) error {
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
