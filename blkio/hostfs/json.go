package hostfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxJSON bounds a file before it is decoded.
const maxJSON = 4 << 20

// WriteJSON replaces a file by the JSON of v, see [ReplaceFile]. The file's directory is created
// if it is absent.
func WriteJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return ReplaceFile(file, data)
}

// ReadJSON decodes a file into v, see [ReadShared]. It returns false without an error if the file
// does not exist.
func ReadJSON(file string, v any) (found bool, err error) {
	return decodeJSON(v, file, func() ([]byte, error) { return ReadShared(file, maxJSON) })
}

// ReadJSONBelow is ReadJSON for a file of at most limit bytes that another process writes, see [ReadSharedBelow].
func ReadJSONBelow(dir, path string, limit int, v any) (found bool, err error) {
	return decodeJSON(v, filepath.Join(dir, path), func() ([]byte, error) { return ReadSharedBelow(dir, path, limit) })
}

func decodeJSON(v any, file string, read func() ([]byte, error)) (found bool, err error) {
	data, err := read()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	return true, nil
}

// Remove removes a file.
func Remove(file string) error { return os.Remove(file) }
