package runtimeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

const (
	crioDir          = "/etc/crio"
	crioConfig       = crioDir + "/crio.conf"
	crioDropIns      = crioDir + "/crio.conf.d"
	crioSocket       = "/run/crio/crio.sock"
	defaultGraphRoot = "/var/lib/containers/storage"
	defaultDriver    = "overlay"
)

// storageFiles returns the paths of storage.conf. The first one that exists counts, and nothing is inherited
// from the other.
//
// Source: types/options.go of containers/storage.
func storageFiles() []string {
	return []string{"/etc/containers/storage.conf", "/usr/share/containers/storage.conf"}
}

// storageConfig has the fields of storage.conf that decide on layers.
type storageConfig struct {
	Storage struct {
		Driver    string `toml:"driver"`
		GraphRoot string `toml:"graphroot"`
		Options   struct {
			MountProgram string `toml:"mount_program"`
			Overlay      struct {
				MountProgram string `toml:"mount_program"`
			} `toml:"overlay"`
		} `toml:"options"`
	} `toml:"storage"`
}

// crioFile has the fields of crio.conf that decide on layers.
type crioFile struct {
	CRIO struct {
		Root    string   `toml:"root"`
		Driver  string   `toml:"storage_driver"`
		Options []string `toml:"storage_option"`
	} `toml:"crio"`
}

// graph is where and how CRI-O stores containers.
type graph struct {
	root, driver string
	program      string // that mounts overlays, "" for the kernel
}

// readCRIO reads CRI-O's configuration. Fields that no file sets have their defaults.
//
// Source: UpdateFromFile and UpdateFromPath in CRI-O's pkg/config.
func readCRIO(host hostfs.Root) (graph, error) {
	var g graph
	for _, file := range storageFiles() {
		var c storageConfig
		ok, err := readTOML(host, file, &c)
		if err != nil {
			return g, err
		}
		if ok {
			o := &c.Storage.Options
			g = graph{root: c.Storage.GraphRoot, driver: c.Storage.Driver, program: cmp.Or(o.Overlay.MountProgram, o.MountProgram)}
			break
		}
	}
	files, err := crioFiles(host)
	if err != nil {
		return g, err
	}
	for _, file := range files {
		var c crioFile
		if _, err := readTOML(host, file, &c); err != nil {
			return g, err
		}
		g.root, g.driver = cmp.Or(c.CRIO.Root, g.root), cmp.Or(c.CRIO.Driver, g.driver)
		for _, o := range c.CRIO.Options {
			if key, value, _ := strings.Cut(o, "="); strings.HasSuffix(strings.TrimSpace(key), ".mount_program") {
				g.program = strings.TrimSpace(value)
			}
		}
	}
	g.root, g.driver = cmp.Or(g.root, defaultGraphRoot), cmp.Or(g.driver, defaultDriver)
	return g, nil
}

// crioFiles returns the files in the order in which CRI-O reads them, with any suffix.
func crioFiles(host hostfs.Root) ([]string, error) {
	out := []string{crioConfig}
	err := fs.WalkDir(host, hostfs.Name(crioDropIns), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, "/"+p)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return out, nil
}

// readTOML returns false where there is no such file.
func readTOML(host hostfs.Root, file string, to any) (bool, error) {
	data, err := host.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := toml.Unmarshal(data, to); err != nil {
		return false, fmt.Errorf("parse %s: %w", file, err)
	}
	return true, nil
}

// layers is one place: CRI-O stores those of all handlers alike. A directory that
// is not there yet is on the disk of the one above it.
func (g *graph) layers() inventory.Layers {
	reason := ""
	switch {
	case g.driver == "devicemapper":
		reason = "gives each container a thin device of its own"
	case g.driver == "zfs":
		reason = "keeps them in a zfs pool, whose I/O belongs to no container"
	case strings.HasPrefix(g.driver, "overlay") && g.program != "":
		reason = "has a process write them (mount_program), and its I/O counts as that process's"
	}
	if reason != "" {
		return inventory.Layers{Default: inventory.Layer{Reason: fmt.Sprintf("CRI-O's storage driver %q %s", g.driver, reason)}}
	}
	return inventory.Layers{Default: inventory.Layer{Dir: path.Join(g.root, g.driver)}}
}
