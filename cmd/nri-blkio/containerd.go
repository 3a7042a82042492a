package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

const (
	defaultContainerdConfig = "/etc/containerd/config.toml"
	defaultContainerdRoot   = "/var/lib/containerd"
	defaultCRIORoot         = "/var/lib/containers/storage"
)

// runtimeRoot returns the directory below which the runtime keeps writable
// layers: containerd's root if its configuration is there (config, or the
// default place), else the default of the runtime that has left its directory.
func runtimeRoot(hostRoot, config string) (string, error) {
	explicit := config != ""
	if !explicit {
		config = defaultContainerdConfig
	}
	root, err := containerdRoot(hostRoot, config)
	switch {
	case err == nil && root != "":
		return root, nil
	case err == nil:
		return defaultContainerdRoot, nil
	case explicit || !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read containerd's configuration: %w", err)
	}
	for _, dir := range []string{defaultContainerdRoot, defaultCRIORoot} {
		if info, err := os.Stat(filepath.Join(hostRoot, dir)); err == nil && info.IsDir() {
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
func containerdRoot(hostRoot, config string) (string, error) {
	root := ""
	seen := map[string]bool{}
	for pending := []string{config}; len(pending) > 0; {
		file := pending[0]
		pending = pending[1:]
		if seen[file] {
			continue
		}
		seen[file] = true
		c, err := readContainerdConfig(filepath.Join(hostRoot, file))
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
		imports, err := resolveImports(hostRoot, file, c.Imports)
		if err != nil {
			return "", err
		}
		pending = append(pending, imports...)
	}
	return root, nil
}

func readContainerdConfig(file string) (containerdConfig, error) {
	var c containerdConfig
	data, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if err := toml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("parse %s: %w", file, err)
	}
	return c, nil
}

// resolveImports returns the imported files as paths of the node.
func resolveImports(hostRoot, parent string, imports []string) ([]string, error) {
	var out []string
	for _, p := range imports {
		p = filepath.Clean(p)
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(parent), p)
		}
		if !strings.Contains(p, "*") {
			out = append(out, p)
			continue
		}
		matches, err := filepath.Glob(filepath.Join(hostRoot, p))
		if err != nil {
			return nil, fmt.Errorf("import %q of %s: %w", p, parent, err)
		}
		for _, m := range matches {
			rel, err := filepath.Rel(hostRoot, m)
			if err != nil {
				return nil, err
			}
			out = append(out, filepath.Join("/", rel))
		}
	}
	return out, nil
}
