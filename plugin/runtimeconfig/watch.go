package runtimeconfig

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// Watch reads where the runtime stores writable layers each time that the runtime connects, and
// logs the locations and their disks when they have changed.
type Watch struct {
	Config  *Config
	Storage *storage.Storage
	Log     logrus.FieldLogger

	mu     sync.Mutex // guards the fields below
	logged bool
	last   inventory.Layers
}

// findDisk bounds the search for the disk under a directory.
const findDisk = 500 * time.Millisecond

// Unasked returns the locations before the runtime was asked.
func Unasked() inventory.Layers {
	return inventory.Layers{Default: inventory.Layer{Unknown: "the runtime was not asked yet"}}
}

// Layers returns the locations of the runtime with this name and version, as Config.Layers does.
func (w *Watch) Layers(ctx context.Context, name, version string) (inventory.Layers, error) {
	layers, err := w.Config.Layers(ctx, name, version)
	if !w.changed(layers) {
		return layers, err
	}
	// The deadline of ctx may have passed while the runtime was asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findDisk)
	defer cancel()
	if readErr := w.Storage.Refresh(ctx); readErr != nil { // the table may be unread at the start
		w.Log.WithError(readErr).Debug("Reading the mount table failed: the disk under writable layers is found by the last one")
	}
	w.log(ctx, "", layers.Of(""))
	for _, handler := range slices.Sorted(maps.Keys(layers.Handlers)) {
		if l := layers.Handlers[handler]; l != layers.Of("") {
			w.log(ctx, handler, l)
		}
	}
	if _, ok := layers.Handlers[""]; ok && layers.Default != layers.Of("") {
		w.log(ctx, "any other", layers.Default)
	}
	return layers, err
}

func (w *Watch) changed(layers inventory.Layers) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := !w.logged || !w.last.Equal(layers)
	w.logged, w.last = true, layers
	return changed
}

// log logs the location of a handler's layers and the disks under it.
func (w *Watch) log(ctx context.Context, handler string, l inventory.Layer) {
	log := w.Log
	if handler != "" {
		log = log.WithField("handler", handler)
	}
	if l.Dir != "" {
		w.Storage.Pin(l.Dir)
		log = log.WithField("directory", l.Dir)
	}
	b := l.Backing(ctx, w.Storage)
	switch {
	case b.Err != nil:
		log.WithError(b.Err).Warn("Disk of writable layers unknown: limits for rootfs are delayed")
	case b.Reason != "":
		log.WithField("reason", b.Reason).Warn("Writable layers cannot be limited: the target rootfs is rejected")
	default:
		log.WithField("disks", blkio.DiskNames(b.Disks)).Info("Found the disk under writable layers")
	}
}
