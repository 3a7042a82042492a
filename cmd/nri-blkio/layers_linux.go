package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// layers returns where the runtime keeps writable layers. Name and version are what
// it says of itself; before it has, they are "". The layers hold beside an error, too,
// as with runtimeconfig.Config.Layers.
func (o *options) layers(ctx context.Context, name, version string) (inventory.Layers, error) {
	if o.rootfs != "" {
		return inventory.Layers{Default: inventory.Layer{Dir: o.rootfs}}, nil
	}
	return o.runtime.Layers(ctx, name, version)
}

// checkRuntimeFlags refuses flags that lead nowhere: what they name would be looked
// for on another disk.
func (o *options) checkRuntimeFlags() error {
	o.runtime.HostRoot = o.hostRoot
	if err := o.runtime.Validate(); err != nil {
		return usage(err)
	}
	if o.rootfs == "" {
		return nil
	}
	return o.checkDir("--rootfs", o.rootfs)
}

// checkDir returns an error unless dir is a directory of the node.
func (o *options) checkDir(flag, dir string) error {
	if !path.IsAbs(dir) {
		return usage(fmt.Errorf("%s: %q is not an absolute path", flag, dir))
	}
	info, err := os.Stat(o.host(dir))
	if err != nil {
		return named(fmt.Errorf("%s: %w", flag, err))
	}
	if !info.IsDir() {
		return usage(fmt.Errorf("%s: %q is not a directory", flag, dir))
	}
	return nil
}

// layerWatch tells of layers when they are not where they were told to be.
type layerWatch struct {
	opts    *options
	storage *storage.Storage
	log     logrus.FieldLogger

	mu   sync.Mutex // guards what is below
	told bool
	last inventory.Layers
}

// firstRead bounds the first question to the runtime. It may be the runtime that
// waits for this process, and it is asked again.
const firstRead = 500 * time.Millisecond

// findDisk bounds the search for the disk under a directory.
const findDisk = 500 * time.Millisecond

// readFirst is read before the runtime has registered the plugin.
func (w *layerWatch) readFirst(ctx context.Context) (inventory.Layers, error) {
	ctx, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	return w.read(ctx, "", "")
}

// read is plugin.Config.ReadLayers.
func (w *layerWatch) read(ctx context.Context, name, version string) (inventory.Layers, error) {
	fresh, err := w.opts.layers(ctx, name, version)
	if !w.isNews(fresh) {
		return fresh, err
	}
	// The time for the runtime's answer may be over: this has its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findDisk)
	defer cancel()
	w.tell(ctx, "", fresh.Of(""))
	for _, handler := range slices.Sorted(maps.Keys(fresh.Handlers)) {
		if l := fresh.Handlers[handler]; l != fresh.Of("") {
			w.tell(ctx, handler, l)
		}
	}
	if _, ok := fresh.Handlers[""]; ok && fresh.Default != fresh.Of("") {
		w.tell(ctx, "any other", fresh.Default)
	}
	return fresh, err
}

func (w *layerWatch) isNews(fresh inventory.Layers) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := !w.told || !w.last.Equal(fresh)
	w.told, w.last = true, fresh
	return changed
}

func (w *layerWatch) tell(ctx context.Context, handler string, l inventory.Layer) {
	log := w.log
	if handler != "" {
		log = log.WithField("handler", handler)
	}
	if l.Dir != "" {
		w.storage.Pin(l.Dir)
		log = log.WithField("directory", l.Dir)
	}
	b := l.Backing(ctx, w.storage)
	switch {
	case b.Err != nil:
		log.WithError(b.Err).Warn("Disk of writable layers unknown: limits for rootfs are delayed")
	case b.Reason != "":
		log.WithField("reason", b.Reason).Warn("Writable layers cannot be limited: the target rootfs is rejected")
	default:
		log.WithField("disks", blkio.DiskNames(b.Disks)).Info("Found the disk under writable layers")
	}
}
