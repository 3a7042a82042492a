package node

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Config describes the node to boot. The zero value is the default node.
type Config struct {
	// Kernel is one of Debian's cloud kernels: "6.12" (default), "6.1", "7.2", or
	// "6.1-affected", which has the bug that the program's kernel gate is for. Or it is one of
	// kernelOptions, which is compiled first.
	Kernel string
	// Engine serves the CRI: "containerd-2" (default) or "crio-1.34", both from their Go modules, or
	// "containerd-1.7", Debian's. The module v1.34.0 of CRI-O is a commit of May 2025 that is in CRI-O 1.33.0 too.
	Engine  string
	Runtime string // "runc" (default) or "crun", Debian's
	Driver  string // cgroup driver: "systemd" (default) or "cgroupfs"
	// ControlPlane is "off" (default) or "on". With "on", a control plane runs on the node,
	// and the kubelet registers there.
	ControlPlane string
	// Small is a node for pods over the CRI alone: Debian's containerd 1.7 and runc, without Kubernetes and without the
	// packages that only tests need. It is built in a few minutes, because nothing is compiled.
	Small bool

	MemoryMiB int       // default 3072, enough for a kubelet and the tests
	CacheDir  string    // default $NRI_BLKIO_CACHE, or nri-blkio in the user's cache directory
	Log       io.Writer // progress, one line for each step; nil discards it

	// KernelArgs are added to the kernel's command line, separated by spaces.
	KernelArgs string
}

const defaultMemoryMiB = 3072

// crioEngine is the engine that has a root image of its own.
const crioEngine = "crio-1.34"

// smallEngine and smallRuntime are those of small nodes.
const smallEngine, smallRuntime = "containerd-1.7", "runc"

// parameters are the choices of a Config; the first is the default.
var parameters = map[string][]string{
	"kernel":  {"6.12", "6.1", "7.2", "6.1-affected", "6.12-nothrottle", "6.12-iolatency"},
	"engine":  {"containerd-2", "containerd-1.7", crioEngine},
	"runtime": {"runc", "crun"},
	"driver":  {"systemd", "cgroupfs"},

	"control-plane": {"off", "on"},
}

// Choices returns the values of a parameter (kernel, engine, runtime, driver or
// control-plane), the default first.
func Choices(parameter string) []string { return slices.Clone(parameters[parameter]) }

// ConfigFromEnv returns the Config of the variables NODE_KERNEL, NODE_ENGINE,
// NODE_RUNTIME, NODE_DRIVER, NODE_CONTROL_PLANE, NODE_MEMORY (MiB) and NODE_KERNEL_ARGS.
// Variables that are not set have the default.
func ConfigFromEnv() (Config, error) { return configFrom(os.Getenv) }

func configFrom(getenv func(string) string) (Config, error) {
	cfg := Config{
		Kernel:     getenv("NODE_KERNEL"),
		Engine:     getenv("NODE_ENGINE"),
		Runtime:    getenv("NODE_RUNTIME"),
		Driver:     getenv("NODE_DRIVER"),
		KernelArgs: getenv("NODE_KERNEL_ARGS"),

		ControlPlane: getenv("NODE_CONTROL_PLANE"),
	}
	if text := getenv("NODE_MEMORY"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return Config{}, fmt.Errorf("NODE_MEMORY %q: want a number of MiB", text)
		}
		cfg.MemoryMiB = n
	}
	return cfg, cfg.Validate()
}

// Validate returns an error for a parameter with an unknown value.
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, p := range []struct{ name, value string }{
		{"kernel", c.Kernel},
		{"engine", c.Engine},
		{"runtime", c.Runtime},
		{"driver", c.Driver},
		{"control-plane", c.ControlPlane},
	} {
		if !slices.Contains(parameters[p.name], p.value) {
			return fmt.Errorf("%s %q: want %s", p.name, p.value, strings.Join(parameters[p.name], " or "))
		}
	}
	if c.Engine == crioEngine && c.Runtime == "runc" {
		// The plugin gives CRI-O the lines of all disks at once, and Debian's runc 1.1 does not split them (docs/reference/quirks.md).
		return fmt.Errorf("%s: want the runtime crun", c.Engine)
	}
	if c.Small && (c.Engine != smallEngine || c.Runtime != smallRuntime || c.ControlPlane != "off") {
		return fmt.Errorf("a small node: want %s, %s, and no control plane", smallEngine, smallRuntime)
	}
	if c.MemoryMiB < 1024 {
		return fmt.Errorf("memory %d MiB: want at least 1024", c.MemoryMiB)
	}
	return nil
}

// String names the node in logs and test names.
func (c Config) String() string {
	c = c.withDefaults()
	name := fmt.Sprintf("kernel %s, %s, %s, %s driver", c.Kernel, strings.Replace(c.Engine, "-", " ", 1), c.Runtime, c.Driver)
	if c.ControlPlane == "on" {
		name += ", control plane"
	}
	if c.Small {
		name += ", small"
	}
	if c.KernelArgs != "" {
		name += ", " + c.KernelArgs // what is measured there is no other node's
	}
	return name
}

func (c Config) withDefaults() Config {
	fill := func(field *string, parameter string) {
		if *field == "" {
			*field = parameters[parameter][0]
		}
	}
	fill(&c.Kernel, "kernel")
	if c.Small && c.Engine == "" {
		c.Engine = smallEngine
	}
	fill(&c.Engine, "engine")
	if c.Engine == crioEngine && c.Runtime == "" {
		c.Runtime = "crun"
	}
	fill(&c.Runtime, "runtime")
	fill(&c.Driver, "driver")
	fill(&c.ControlPlane, "control-plane")
	if c.MemoryMiB == 0 {
		c.MemoryMiB = defaultMemoryMiB
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	return c
}

// logf writes one line of progress.
func (c Config) logf(format string, args ...any) {
	fmt.Fprintf(c.Log, "node: "+format+"\n", args...)
}
