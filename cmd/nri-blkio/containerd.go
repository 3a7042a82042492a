package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/pelletier/go-toml/v2"
)

const (
	defaultContainerdConfig = "/etc/containerd/config.toml"
	defaultContainerdRoot   = "/var/lib/containerd"
	defaultCRIORoot         = "/var/lib/containers/storage"
)

// hostFS is the node's filesystem, by its root directory. Symlinks lead where
// they lead on the node, absolute ones too: os.DirFS would follow those to this
// process's own root, and os.Root refuses them.
type hostFS string

// Open opens a file by its path on the node, without the slash in front.
func (h hostFS) Open(name string) (fs.File, error) {
	file, err := securejoin.SecureJoin(string(h), name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: err}
	}
	return os.Open(file)
}

// below makes a path of the node a name in a hostFS.
func below(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// runtimeRoot returns the directory below which the runtime keeps writable
// layers: containerd's root if its configuration is there (config, or the
// default place), else the default of the runtime that has left its directory.
func runtimeRoot(host hostFS, config string) (string, error) {
	explicit := config != ""
	if !explicit {
		config = defaultContainerdConfig
	}
	root, err := containerdRoot(host, config)
	switch {
	case err == nil && root != "":
		return root, nil
	case err == nil:
		return defaultContainerdRoot, nil
	case explicit || !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read containerd's configuration: %w", err)
	}
	for _, dir := range []string{defaultContainerdRoot, defaultCRIORoot} {
		if info, err := fs.Stat(host, below(dir)); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return defaultContainerdRoot, nil
}

// containerdConfig is what matters here; the rest is containerd's.
type containerdConfig struct {
	Root    string   `toml:"root"`
	Imports []string `toml:"imports"`
}

// containerdRoot reads the key "root" the way containerd does: breadth first
// through the imports, each file once, the last value wins. It returns "" where
// no file names one.
//
// Source: LoadConfig in containerd's cmd/containerd/server/config.
func containerdRoot(host hostFS, config string) (string, error) {
	root := ""
	seen := map[string]bool{}
	for pending := []string{config}; len(pending) > 0; {
		file := pending[0]
		pending = pending[1:]
		if seen[file] {
			continue
		}
		seen[file] = true
		c, err := readContainerdConfig(host, file)
		if err != nil {
			if file != config {
				// Not "no containerd here": an import of it is missing.
				err = fmt.Errorf("imported by %s: %v", config, err) //nolint:errorlint // must not read as ErrNotExist
			}
			return "", err
		}
		if c.Root != "" {
			root = c.Root
		}
		imports, err := resolveImports(host, file, c.Imports)
		if err != nil {
			return "", err
		}
		pending = append(pending, imports...)
	}
	return root, nil
}

func readContainerdConfig(host hostFS, file string) (containerdConfig, error) {
	var c containerdConfig
	data, err := fs.ReadFile(host, below(file))
	if err != nil {
		return c, err
	}
	if err := toml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("parse %s: %w", file, err)
	}
	return c, nil
}

// resolveImports returns the imported files as paths of the node.
func resolveImports(host hostFS, parent string, imports []string) ([]string, error) {
	var out []string
	for _, p := range imports {
		if !path.IsAbs(p) {
			p = path.Join(path.Dir(parent), p)
		}
		if p = path.Clean(p); !strings.Contains(p, "*") {
			out = append(out, p)
			continue
		}
		matches, err := fs.Glob(host, below(p))
		if err != nil {
			return nil, fmt.Errorf("import %q of %s: %w", p, parent, err)
		}
		for _, m := range matches {
			out = append(out, "/"+m)
		}
	}
	return out, nil
}
