package runtimeconfig

import (
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// runtimeLayers returns the layers by the files of a node.
func runtimeLayers(host hostfs.Root, config, name, version string) (inventory.Layers, error) {
	c := Config{HostRoot: string(host), Containerd: config}
	files, err := c.readFiles(host, name, version)
	if err != nil {
		return inventory.Layers{}, err
	}
	return files.layers(), nil
}
