package runtimeconfig

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// The names of plugins in containerd's configuration.
const (
	criVersion2  = "io.containerd.grpc.v1.cri" // all of the CRI, in version 2
	criImages    = "io.containerd.cri.v1.images"
	criRuntime   = "io.containerd.cri.v1.runtime"
	snapshotters = "io.containerd.snapshotter.v1"
)

// containerd's defaults.
const (
	defaultSnapshotter = "overlayfs"
	defaultHandler     = "runc"
)

// containerdConfig is a configuration as containerd sees it, all files together
// and with the names of version 3.
type containerdConfig struct {
	root    string
	plugins map[string]any
	proxies map[string]proxyPlugin
}

// mergeContainerd puts the files together as containerd of this version does;
// "" is one that is not known yet. root is containerd's where no file names one.
//
// Source: mergeConfig in containerd's services/server/config (1.7) and
// cmd/containerd/server/config (2).
func mergeContainerd(files []containerdFile, root, version string) containerdConfig {
	out := containerdConfig{root: root, plugins: map[string]any{}, proxies: map[string]proxyPlugin{}}
	one := isContainerd1(files, version)
	for _, f := range files {
		out.root = cmp.Or(f.Root, out.root)
		maps.Copy(out.proxies, f.Proxies)
		switch {
		case one: // a plugin's section replaces that of the files before
			maps.Copy(out.plugins, f.Plugins)
		case f.Version >= 3:
			out.plugins = mergeTables(out.plugins, f.Plugins)
		default: // each file is migrated by itself
			out.plugins = mergeTables(out.plugins, migrate(f.Plugins, true))
		}
	}
	if one {
		out.plugins = migrate(out.plugins, false)
	}
	return out
}

// isContainerd1 reports whether files belong to containerd 1, which takes a configuration of version 2 at most.
// containerd 2 takes version 2 too. So until the runtime has reported its version, a configuration of version 2
// counts as one of containerd 1.
func isContainerd1(files []containerdFile, version string) bool {
	if slices.ContainsFunc(files, func(f containerdFile) bool { return f.Version >= 3 }) {
		return false
	}
	return version == "" || strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.")
}

// migrate gives the CRI's section of version 2 the names of version 3.
// containerd 2 forgets the snapshotter of a section that has no runtimes.
//
// Source: configMigration in containerd's plugins/cri/images and
// plugins/cri/runtime (2.0 to 2.4).
func migrate(plugins map[string]any, forgets bool) map[string]any {
	cri := section(plugins, criVersion2, "containerd")
	if cri == nil {
		return plugins
	}
	out := mergeTables(map[string]any{criRuntime: map[string]any{"containerd": cri}}, plugins)
	if s, ok := cri["snapshotter"]; ok && (cri["runtimes"] != nil || !forgets) {
		out = mergeTables(out, map[string]any{criImages: map[string]any{"snapshotter": s}})
	}
	return out
}

// mergeTables returns to with the keys of from, which win.
func mergeTables(to, from map[string]any) map[string]any {
	out := make(map[string]any, len(to)+len(from))
	maps.Copy(out, to)
	for k, v := range from {
		a, aOK := out[k].(map[string]any)
		b, bOK := v.(map[string]any)
		if aOK && bOK {
			v = mergeTables(a, b)
		}
		out[k] = v
	}
	return out
}

// section returns the table at the keys, nil where there is none.
func section(t map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		t, _ = t[k].(map[string]any)
	}
	return t
}

// text returns the string at the key of a table, "" where there is none.
func text(t map[string]any, key string) string {
	s, _ := t[key].(string)
	return s
}

// layers picks each runtime handler's snapshotter. runtime_platforms in the
// section of the images has snapshotters too, for pulling only.
//
// Source: runtimeSnapshotter in containerd's pkg/cri/server (1.7),
// RuntimeSnapshotter in internal/cri/server/images (2); GetSandboxRuntime for
// pods without a handler.
func (c *containerdConfig) layers() inventory.Layers {
	name := cmp.Or(text(section(c.plugins, criImages), "snapshotter"), defaultSnapshotter)
	cri := section(c.plugins, criRuntime, "containerd")
	handlers := map[string]string{}
	for handler := range section(cri, "runtimes") {
		handlers[handler] = text(section(cri, "runtimes", handler), "snapshotter")
	}
	return layersOf(name, text(cri, "default_runtime_name"), handlers, c.layer)
}

// layersOf puts together the layers of the default snapshotter and of the handlers
// that have another one.
func layersOf(name, defaultName string, handlers map[string]string, layer func(string) inventory.Layer) inventory.Layers {
	out := inventory.Layers{Default: layer(name), Handlers: map[string]inventory.Layer{}}
	for handler, snapshotter := range handlers {
		if snapshotter != "" {
			out.Handlers[handler] = layer(snapshotter)
		}
	}
	if own, ok := out.Handlers[cmp.Or(defaultName, defaultHandler)]; ok {
		out.Handlers[""] = own
	}
	return out
}

// layer returns the directory in which a snapshotter stores writable layers.
//
// Source: containerd's plugins/snapshots/*/plugin (snapshots/*/plugin in 1.7); LoadPlugins in
// cmd/containerd/server for proxies.
func (c *containerdConfig) layer(name string) inventory.Layer {
	own := section(c.plugins, snapshotters+"."+name)
	if reason := noDirectory(name, own); reason != "" {
		return because(name, reason)
	}
	proxy, proxied := c.proxies[name]
	switch {
	case !proxied || proxy.Type != "snapshot" && proxy.Type != snapshotters:
		return inventory.Layer{Dir: cmp.Or(text(own, "root_path"), path.Join(c.root, snapshotters+"."+name))}
	case proxy.Exports["root"] == "":
		return because(name, proxySilent)
	}
	return inventory.Layer{Dir: proxy.Exports["root"]}
}

// proxySilent is why it is not known where a proxied snapshotter stores layers.
const proxySilent = "is a process of its own, and containerd's configuration does not say where it keeps them (exports.root)"

func because(name, reason string) inventory.Layer {
	return inventory.Layer{Reason: fmt.Sprintf("containerd's snapshotter %q %s", name, reason)}
}

// noDirectory returns why a snapshotter's writable layers are in no directory, ""
// where they are in one. Where each has a device of its own, the disk below the
// snapshotter's directory is another one. own is its section of the configuration.
func noDirectory(name string, own map[string]any) string {
	switch {
	case name == "devmapper":
		return "gives each container a thin device of its own"
	case name == "blockfile", name == "erofs" && !isZero(text(own, "default_size")):
		return "gives each container a loop device of its own"
	case name == "zfs":
		return "keeps them in a zfs pool, whose I/O belongs to no container"
	case name == "fuse-overlayfs":
		return "has a process write them, and its I/O counts as that process's"
	}
	return ""
}

// isZero reports whether erofs's default_size, such as "10GiB", is 0. With 0, as without it, layers are
// directories.
func isZero(size string) bool { return strings.Trim(size, "0") == "" }

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
