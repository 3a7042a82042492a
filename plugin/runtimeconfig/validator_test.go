package runtimeconfig

import "testing"

// TestValidatorOff verifies in which files containerd's own validator is found.
func TestValidatorOff(t *testing.T) {
	const (
		config = "etc/containerd/config.toml="
		on     = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n"
		off    = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = false\n"
		usual  = "/etc/containerd/config.toml"
		k3s    = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
	)
	for _, tt := range []struct {
		name  string
		files []string
		want  string
		isOff bool
	}{
		{"no containerd", []string{"etc/hostname=x"}, "", false},
		{"unreadable", []string{config + "version = \n"}, "", false},
		{"defaults, without a file", []string{"var/lib/containerd/x="}, usual, true},
		{"defaults", []string{config + "version = 3\n"}, usual, true},
		{"on", []string{config + "version = 3\n" + on}, usual, false},
		{"on, in version 2", []string{config + "version = 2\n" + on}, usual, false},
		{"off", []string{config + "version = 3\n" + off}, usual, true},
		{"on in an import", []string{config + "version = 3\nimports = ['conf.d/*.toml']\n", "etc/containerd/conf.d/nri.toml=version = 3\n" + on}, usual, false},
		{"another section in an import", []string{
			config + "version = 2\nimports = ['conf.d/*.toml']\n" + on,
			"etc/containerd/conf.d/nri.toml=version = 2\n[plugins.'io.containerd.nri.v1.nri']\nplugin_request_timeout = '3s'\n",
		}, usual, false},
		{"not imported", []string{config + "version = 3\n", "etc/containerd/conf.d/nri.toml=version = 3\n" + on}, usual, true},
		{"k3s", []string{k3s + "=version = 3\n" + on}, "/" + k3s, false},
	} {
		c := Config{HostRoot: newNode(t, tt.files...)}
		if file, isOff := c.ValidatorOff(); file != tt.want || isOff != tt.isOff {
			t.Errorf("%s: %q, %t, want %q, %t", tt.name, file, isOff, tt.want, tt.isOff)
		}
	}
}
