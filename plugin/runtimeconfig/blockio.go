package runtimeconfig

// tasks is the plugin of containerd that reads the file of blockio classes.
const tasks = "io.containerd.service.v1.tasks-service"

// BlockioFile returns the path of the file of blockio classes that the runtime with this name and version applies by its
// configuration files. It is "" if there is none, and if the files cannot be read. The name is as for Layers.
//
// Source: Config in containerd's plugins/services/tasks (2) and services/tasks (1.7); RuntimeConfig in CRI-O's pkg/config.
func (c *Config) BlockioFile(name, version string) string {
	f, err := c.readFiles(c.host(), name, version)
	switch {
	case err != nil:
		return ""
	case f.crio != nil:
		return f.crio.blockio
	}
	return text(section(f.containerd.plugins, tasks), "blockio_config_file")
}
