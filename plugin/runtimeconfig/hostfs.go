package runtimeconfig

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// hostFS is the node's filesystem, by its root directory. Symlinks lead where
// they lead on the node, absolute ones too: os.DirFS would follow those to this
// process's own root, and os.Root refuses them.
type hostFS string

// Open opens a file by its path on the node, without the slash in front.
func (h hostFS) Open(name string) (fs.File, error) {
	file, err := h.resolve("/" + name)
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

// resolve returns where this process finds a path of the node.
func (h hostFS) resolve(name string) (string, error) {
	file, err := securejoin.SecureJoin(string(h), name)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// maxConfig bounds a configuration file of others: theirs have some KiB.
const maxConfig = 1 << 20

// readConfig reads a file of the node by its absolute path.
func (h hostFS) readConfig(file string) ([]byte, error) {
	f, err := h.Open(below(file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("read %s: larger than %d bytes", file, maxConfig)
	}
	return data, nil
}

// isDir reports whether a directory of the node is there.
func (h hostFS) isDir(dir string) bool {
	info, err := h.stat(dir)
	return err == nil && info.IsDir()
}

// exists reports whether a file of any kind is there.
func (h hostFS) exists(file string) bool {
	_, err := h.stat(file)
	return err == nil
}

// stat opens nothing: a socket cannot be opened.
func (h hostFS) stat(name string) (fs.FileInfo, error) {
	file, err := h.resolve(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(file)
}

// below makes a path of the node a name in a hostFS.
func below(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }
