package runtimeconfig

import "github.com/nri-blkio/nri-blkio/plugin"

// runtimeLayers is what the files of a node tell.
func runtimeLayers(host hostFS, config, name, version string) (plugin.Layers, error) {
	c := Config{HostRoot: string(host), Containerd: config}
	files, err := c.readFiles(host, name, version)
	if err != nil {
		return plugin.Layers{}, err
	}
	return files.layers(), nil
}
