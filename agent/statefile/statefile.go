// Package statefile keeps small states in files of the agent's folder, where the next agent finds
// them.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxSize bounds a file in bytes. States are bounded by their owners, far below.
const maxSize = 1 << 20

// Read decodes the JSON of a file into v. The error is fs.ErrNotExist without the file. With an
// error v may have a part of the state.
func Read(path string, v any) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return err
	}
	if len(text) > maxSize {
		return fmt.Errorf("the file has more than %d bytes", maxSize)
	}
	return json.Unmarshal(text, v)
}

// Write replaces a file by the JSON of v. At no time the file has a part of a state, also if an agent
// and its successor write it at once.
func Write(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return err // names the file
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
