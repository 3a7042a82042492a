package hostfs

import "os"

// MakeDir makes a directory that only its owner may enter, and those above it, unless it
// exists.
func MakeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// FindDir returns an error if a directory does not exist.
func FindDir(dir string) error {
	_, err := os.Stat(dir)
	return err
}
