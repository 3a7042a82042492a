package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin"
)

// layers says where the runtime keeps writable layers, by its configuration. Name
// and version are what it says of itself; before it has, they are "", and what
// is on the node tells which one it is.
func (o *options) layers(name, version string) (plugin.Layers, error) {
	if o.rootfs != "" {
		if !path.IsAbs(o.rootfs) {
			return plugin.Layers{}, fmt.Errorf("--rootfs: %q is not an absolute path", o.rootfs)
		}
		return plugin.Layers{Default: plugin.Layer{Dir: o.rootfs}}, nil
	}
	return runtimeLayers(hostFS(filepath.Clean(o.hostRoot)), o.containerdConfig, name, version)
}

// runtimeLayers takes containerd's configuration from config, or from the default
// place. Who names one has no CRI-O.
func runtimeLayers(host hostFS, config, name, version string) (plugin.Layers, error) {
	explicit := config != ""
	if !explicit {
		config = defaultContainerdConfig
	}
	if name == "cri-o" && !explicit {
		return crioLayers(host)
	}
	files, err := readContainerdFiles(host, config)
	switch {
	case err == nil:
	case explicit || !errors.Is(err, fs.ErrNotExist):
		return plugin.Layers{}, fmt.Errorf("read containerd's configuration: %w", err)
	case name == "" && !host.isDir(defaultContainerdRoot) && (host.isDir(crioDir) || host.isDir(defaultGraphRoot)):
		return crioLayers(host)
	}
	c := mergeContainerd(files, version)
	return c.layers(), nil
}

func crioLayers(host hostFS) (plugin.Layers, error) {
	g, err := readCRIO(host)
	if err != nil {
		return plugin.Layers{}, fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	return g.layers(), nil
}

// layerWatch tells of layers when they are not where they were told to be.
type layerWatch struct {
	opts    *options
	storage *blkio.Storage
	log     logrus.FieldLogger

	mu   sync.Mutex // guards what is below
	told bool
	last plugin.Layers
}

// read is plugin.Config.ReadLayers.
func (w *layerWatch) read(ctx context.Context, name, version string) (plugin.Layers, error) {
	fresh, err := w.opts.layers(name, version)
	if err != nil {
		return fresh, err
	}
	w.mu.Lock()
	changed := !w.told || !w.last.Equal(fresh)
	w.told, w.last = true, fresh
	w.mu.Unlock()
	if changed {
		w.tell(ctx, "", fresh.Of(""))
		for _, handler := range slices.Sorted(maps.Keys(fresh.Handlers)) {
			if l := fresh.Handlers[handler]; l != fresh.Of("") {
				w.tell(ctx, handler, l)
			}
		}
		if _, ok := fresh.Handlers[""]; ok && fresh.Default != fresh.Of("") {
			w.tell(ctx, "any other", fresh.Default)
		}
	}
	return fresh, nil
}

func (w *layerWatch) tell(ctx context.Context, handler string, l plugin.Layer) {
	log := w.log
	if handler != "" {
		log = log.WithField("handler", handler)
	}
	if l.Reason == "" {
		w.storage.Pin(l.Dir)
		log = log.WithField("directory", l.Dir)
	}
	b := l.Backing(ctx, w.storage)
	if b.Reason != "" {
		log.WithField("reason", b.Reason).Warn("Writable layers cannot be limited, the target rootfs will be refused")
		return
	}
	log.WithField("disks", diskNames(b.Disks)).Info("Found the disk under writable layers")
}
