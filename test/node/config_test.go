package node

import (
	"strings"
	"testing"
)

func TestConfigDefaults(t *testing.T) {
	var cfg Config
	if err := cfg.Validate(); err != nil {
		t.Fatalf("the zero Config: %v", err)
	}
	if got, want := cfg.String(), "kernel 6.12, containerd 2, runc, systemd driver"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string // a part of the error, "" for none
	}{
		{Config{Kernel: "6.1", Engine: "containerd-1.7", Runtime: "crun", Driver: "cgroupfs"}, ""},
		{Config{Kernel: "5.10"}, `kernel "5.10": want 6.12 or 6.1 or 7.2 or 6.1-affected or 6.12-nothrottle or 6.12-iolatency`},
		{Config{Engine: "containerd-2.4"}, `engine "containerd-2.4": want containerd-2 or containerd-1.7 or crio-1.34`},
		{Config{Engine: "crio-1.34"}, ""},
		{Config{Engine: "crio-1.34", Runtime: "runc"}, "want the runtime crun"},
		{Config{Runtime: "kata"}, `runtime "kata": want runc or crun`},
		{Config{Driver: "v1"}, `driver "v1": want systemd or cgroupfs`},
		{Config{Small: true}, ""},
		{Config{Small: true, Engine: "containerd-2"}, "a small node: want containerd-1.7, runc, and no control plane"},
		{Config{Small: true, Runtime: "crun"}, "a small node"},
		{Config{Small: true, ControlPlane: "on"}, "a small node"},
		{Config{MemoryMiB: 100}, "memory 100 MiB"},
		{Config{MemoryMiB: -1}, "memory -1 MiB"},
	} {
		err := tt.cfg.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: error %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

func TestConfigFrom(t *testing.T) {
	env := map[string]string{
		"NODE_KERNEL": "6.1", "NODE_ENGINE": "containerd-1.7", "NODE_RUNTIME": "crun",
		"NODE_DRIVER": "cgroupfs", "NODE_MEMORY": "2048",
		"NODE_KERNEL_ARGS": "quiet lsm=lockdown",
	}
	cfg, err := configFrom(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Kernel: "6.1", Engine: "containerd-1.7", Runtime: "crun", Driver: "cgroupfs", MemoryMiB: 2048, KernelArgs: "quiet lsm=lockdown",
	}
	if cfg != want {
		t.Errorf("got %+v, want %+v", cfg, want)
	}
	for name, value := range map[string]string{"NODE_MEMORY": "2G", "NODE_DRIVER": "both"} {
		env := map[string]string{name: value}
		if _, err := configFrom(func(name string) string { return env[name] }); err == nil {
			t.Errorf("%s=%s: no error", name, value)
		}
	}
}

func TestCommandLine(t *testing.T) {
	line := commandLine(Config{Driver: "cgroupfs"}.withDefaults(), "S0VZ")
	for _, want := range []string{
		"cgroup_no_v1=all", "panic=-1", "nri_node.engine=containerd-2", "nri_node.runtime=runc",
		"nri_node.driver=cgroupfs", "nri_node.key=S0VZ",
	} {
		if !strings.Contains(" "+line+" ", " "+want+" ") {
			t.Errorf("%q lacks %q", line, want)
		}
	}
	// The kernel cuts its command line off at 2,048 bytes (COMMAND_LINE_SIZE).
	if len(line) > 1024 {
		t.Errorf("the command line has %d bytes", len(line))
	}
}

// TestKernelArgs verifies that the additional arguments of the kernel are the last ones, and that the name of a
// node includes them.
func TestKernelArgs(t *testing.T) {
	const args = "lsm=capability,lockdown lockdown=confidentiality"
	cfg := Config{KernelArgs: args}
	if line := commandLine(cfg.withDefaults(), "S0VZ"); !strings.HasSuffix(line, " nri_node.key=S0VZ "+args) {
		t.Errorf("%q does not end with %q", line, args)
	}
	if got, want := cfg.String(), (Config{}).String()+", "+args; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}
