package runtimeconfig

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
