// Package runtimeconfig finds the directories in which a node's container runtime stores
// writable layers. It asks containerd by its API. If that fails, and for CRI-O, it reads
// the configuration files.
package runtimeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// NoEndpoint disables requests to the runtime.
const NoEndpoint = "none"

// ErrNoSocket means that no known containerd socket exists.
var ErrNoSocket = errors.New("containerd's socket not found (set --runtime-endpoint)")

// askDeadline bounds the time for the two calls of the runtime's API. containerd answers
// both from memory.
const askDeadline = 2 * time.Second

// Config names the runtime's socket and configuration files.
type Config struct {
	// HostRoot is the directory at which the node's root filesystem is mounted. "" means
	// "/".
	HostRoot string
	// Endpoint is containerd's socket: a path on the node, or unix://PATH. If it is "", the
	// known places are searched. With NoEndpoint only files are read.
	Endpoint string
	// Containerd is the path on the node of containerd's configuration. If it is "", the
	// known places are searched, also for that of CRI-O.
	Containerd string
	// Rootfs is a directory of the node on the disk that holds the writable layers of all
	// containers. If it is set, neither the runtime is asked nor are files read.
	Rootfs string
}

// Validate returns an error for an Endpoint that is neither a path nor NoEndpoint, and for
// a Containerd that cannot be read.
func (c *Config) Validate() error {
	if c.Endpoint != "" && c.Endpoint != NoEndpoint && !path.IsAbs(c.endpoint()) {
		return fmt.Errorf("invalid endpoint %q: neither an absolute path, nor a unix:// address, nor %q", c.Endpoint, NoEndpoint)
	}
	if c.Containerd == "" {
		return nil
	}
	if _, err := readContainerdFiles(c.host(), c.Containerd); err != nil {
		return fmt.Errorf("read containerd's configuration: %w", err)
	}
	return nil
}

func (c *Config) host() hostfs.Root { return hostfs.Root(filepath.Clean(cmp.Or(c.HostRoot, "/"))) }

func (c *Config) endpoint() string { return strings.TrimPrefix(c.Endpoint, "unix://") }

// Layers returns the directories in which the runtime with this name and version stores writable layers. The
// name is "" until the runtime has registered the plugin.
//
// With an error, the layers are still the best known ones: those of the configuration files, if the runtime did
// not answer, or those in a directory that does not exist. A later call may succeed.
func (c *Config) Layers(ctx context.Context, name, version string) (inventory.Layers, error) {
	if c.Rootfs != "" {
		return inventory.Layers{Default: inventory.Layer{Dir: c.Rootfs}}, nil
	}
	host := c.host()
	files, fileErr := c.readFiles(host, name, version)
	if name == "cri-o" || c.Endpoint == NoEndpoint || files.crio != nil && c.Endpoint == "" {
		if fileErr != nil {
			return unknown(fileErr)
		}
		return verify(host, files.layers(), nil)
	}
	answer, err := c.ask(ctx, host, files.containerd)
	if err == nil {
		return verify(host, answer, nil)
	}
	if fileErr != nil {
		return unknown(errors.Join(err, fileErr))
	}
	return verify(host, files.layers(), err)
}

// files has the contents of the configuration files of the node's runtime.
type files struct {
	crio       *graph           // nil if the runtime is containerd
	containerd containerdConfig // the part that could be read
}

func (f *files) layers() inventory.Layers {
	if f.crio != nil {
		return f.crio.layers()
	}
	return f.containerd.layers()
}

// readFiles reads the configuration of containerd or CRI-O. If an operator names a configuration of containerd,
// CRI-O's is not read.
func (c *Config) readFiles(host hostfs.Root, name, version string) (files, error) {
	at := find(host)
	explicit := c.Containerd != ""
	if explicit {
		at.config = c.Containerd
		if i := slices.IndexFunc(locations(), func(l location) bool { return l.config == path.Clean(c.Containerd) }); i >= 0 {
			at = locations()[i]
		}
	}
	// Of an installed containerd that does not run, such as Docker's, there are files too.
	runsCRIO := name == "cri-o" || name == "" && !host.Exists(at.socket) && host.Exists(crioSocket)
	if runsCRIO && !explicit {
		return readCRIOFiles(host)
	}
	read, err := readContainerdFiles(host, at.config)
	switch {
	case err == nil:
	case explicit || !errors.Is(err, fs.ErrNotExist):
		return files{}, fmt.Errorf("read containerd's configuration: %w", err)
	case name == "" && !host.IsDir(at.root) && (host.IsDir(crioDir) || host.IsDir(defaultGraphRoot)):
		return readCRIOFiles(host)
	}
	return files{containerd: mergeContainerd(read, at.root, version)}, nil
}

func readCRIOFiles(host hostfs.Root) (files, error) {
	g, err := readCRIO(host)
	if err != nil {
		return files{crio: &g}, fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	return files{crio: &g}, nil
}

// ask asks containerd at the first socket that a CRI answers at: Docker's
// containerd has none.
func (c *Config) ask(ctx context.Context, host hostfs.Root, known containerdConfig) (out inventory.Layers, _ error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	err := c.eachSocket(containerdSockets(), func(socket string) (err error) {
		if out, err = askSocket(ctx, host, socket, known); err != nil {
			err = fmt.Errorf("ask containerd at %s: %w", socket, err)
		}
		return err
	})
	return out, err
}

// eachSocket calls do with the Endpoint, or with the known sockets that the node has, until one returns no error. It
// returns the last error.
func (c *Config) eachSocket(known []string, do func(socket string) error) error {
	if c.Endpoint != "" {
		return do(c.endpoint())
	}
	err := ErrNoSocket
	for _, socket := range known {
		if !c.host().Exists(socket) {
			continue
		}
		if err = do(socket); err == nil {
			return nil
		}
	}
	return err
}

// unknown returns the answer where neither the runtime nor files have the location.
func unknown(err error) (inventory.Layers, error) {
	return inventory.Layers{Default: inventory.Layer{Unknown: err.Error()}}, err
}

// verify replaces layers whose directory is not there, and adds that to the error.
func verify(host hostfs.Root, l inventory.Layers, err error) (inventory.Layers, error) {
	if err != nil && l.Equal(inventory.Layers{}) {
		return unknown(err)
	}
	missing := map[string]bool{}
	check := func(l inventory.Layer) inventory.Layer {
		if l.Dir == "" || host.IsDir(l.Dir) {
			return l
		}
		missing[l.Dir] = true
		return inventory.Layer{Reason: "the runtime stores them in " + l.Dir + ", which is not a directory on this node"}
	}
	l.Default = check(l.Default)
	l.Handlers = maps.Clone(l.Handlers)
	for handler, layer := range l.Handlers {
		l.Handlers[handler] = check(layer)
	}
	for _, dir := range slices.Sorted(maps.Keys(missing)) {
		err = errors.Join(err, fmt.Errorf("%s is not a directory on this node", dir))
	}
	return l, err
}

// location is where a distribution of containerd has its files on the node.
type location struct {
	config string // of containerd
	root   string // containerd's, where the configuration names none
	socket string // of containerd's API
}

// standard is where containerd's own defaults are.
func standard() location {
	return location{defaultContainerdConfig, defaultContainerdRoot, "/run/containerd/containerd.sock"}
}

// locations returns the known locations. If several are on a node, the kubelet uses that of its distribution;
// containerd's own belongs to Docker then.
//
// Sources: pkg/agent/config and pkg/agent/containerd of k3s, whose agent RKE2 starts with another data
// directory; docs/runtime.md of k0s.
func locations() []location {
	const k3sSocket = "/run/k3s/containerd/containerd.sock"
	return []location{
		{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/containerd", k3sSocket},
		{"/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/containerd", k3sSocket},
		{"/etc/k0s/containerd.toml", "/var/lib/k0s/containerd", "/run/k0s/containerd.sock"},
		standard(),
	}
}

// find returns the location of the containerd that runs or, if none runs, that of the installed one. A socket
// in /run belongs to a containerd that was started since the boot.
func find(host hostfs.Root) location {
	for _, l := range locations() {
		if host.Exists(l.config) && host.Exists(l.socket) {
			return l
		}
	}
	if std := standard(); host.IsDir(std.root) || host.Exists(std.config) {
		return std
	}
	for _, l := range locations() {
		if host.Exists(l.config) {
			return l
		}
	}
	return standard()
}

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
