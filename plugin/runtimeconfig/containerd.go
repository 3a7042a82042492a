package runtimeconfig

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

const (
	defaultContainerdConfig = "/etc/containerd/config.toml"
	defaultContainerdRoot   = "/var/lib/containerd"
)

// containerdFile has the fields of one file of containerd's configuration that decide on layers.
type containerdFile struct {
	Version int                    `toml:"version"`
	Root    string                 `toml:"root"`
	Imports []string               `toml:"imports"`
	Plugins map[string]any         `toml:"plugins"`
	Proxies map[string]proxyPlugin `toml:"proxy_plugins"`
}

// proxyPlugin is a plugin of containerd that is another process.
type proxyPlugin struct {
	Type    string            `toml:"type"`
	Exports map[string]string `toml:"exports"`
}

// maxContainerdFiles bounds the imports of a configuration.
const maxContainerdFiles = 256

// readContainerdFiles reads a configuration and its imports in the order of containerd: breadth first, each
// file once. A later one wins.
//
// Source: LoadConfig in containerd's services/server/config (1.7) and cmd/containerd/server/config (2).
func readContainerdFiles(host hostfs.Root, config string) ([]containerdFile, error) {
	var out []containerdFile
	seen := map[string]bool{}
	for pending := []string{config}; len(pending) > 0; {
		file := pending[0]
		pending = pending[1:]
		if seen[file] {
			continue
		}
		seen[file] = true
		if len(seen) > maxContainerdFiles {
			return nil, fmt.Errorf("%s imports more than %d files", config, maxContainerdFiles)
		}
		c, err := readContainerdFile(host, file)
		if err != nil {
			if file != config {
				// Not "no containerd here": an import of it is missing.
				err = fmt.Errorf("imported by %s: %v", config, err) //nolint:errorlint // must not read as ErrNotExist
			}
			return nil, err
		}
		out = append(out, c)
		imports, err := resolveImports(host, file, c.Imports)
		if err != nil {
			return nil, err
		}
		pending = append(pending, imports...)
	}
	return out, nil
}

func readContainerdFile(host hostfs.Root, file string) (containerdFile, error) {
	data, err := host.ReadFile(file)
	if err != nil {
		return containerdFile{}, err
	}
	return parseContainerdFile(file, data)
}

func parseContainerdFile(file string, data []byte) (c containerdFile, err error) {
	if err := toml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("parse %s: %w", file, err)
	}
	return c, nil
}

// resolveImports returns the imported files as paths of the node.
func resolveImports(host hostfs.Root, parent string, imports []string) ([]string, error) {
	var out []string
	for _, p := range imports {
		if !path.IsAbs(p) {
			p = path.Join(path.Dir(parent), p)
		}
		if p = path.Clean(p); !strings.Contains(p, "*") {
			out = append(out, p)
			continue
		}
		matches, err := fs.Glob(host, hostfs.Name(p))
		if err != nil {
			return nil, fmt.Errorf("import %q of %s: %w", p, parent, err)
		}
		for _, m := range matches {
			out = append(out, "/"+m)
		}
	}
	return out, nil
}

// nriPlugin is the section of NRI in containerd's configuration.
const nriPlugin = "io.containerd.nri.v1.nri"

// ValidatorOff reports whether the files of containerd leave its own validator off, without which the runtime ignores the
// plugins that a pod requires. It returns the main file as well, which may be missing. If the node has no containerd, or its
// files cannot be read, it returns false. A running containerd may have read an older version of
// the files. No API reports what it has read: "config" in CRI's verbose Status has only the section of CRI.
//
// Source: Config in containerd's internal/nri (2.2 or later; older ones have no validators).
func (c *Config) ValidatorOff() (file string, isOff bool) {
	host := c.host()
	at := find(host)
	read, err := c.readFiles(host, "containerd", "2")
	if err != nil || !host.IsDir(at.root) && !host.Exists(at.config) {
		return "", false
	}
	enabled, _ := section(read.containerd.plugins, nriPlugin, "default_validator")["enable"].(bool)
	return at.config, !enabled
}
