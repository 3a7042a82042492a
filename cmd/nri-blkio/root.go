package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/policy"
)

// options are the flags that more than one command has.
type options struct {
	hostRoot   string
	cgroupRoot string
	logLevel   string
	logFormat  string

	policy      string
	runtime     runtimeconfig.Config
	rootfs      string
	kubeletRoot string
	orphanGrace time.Duration // see orphanFinder
	mode        string        // of the policy, if it is not to be the file's
	stateDir    string

	preinstalled bool // no flag: how the runtime starts us
}

const rootLong = `Block I/O limits for Kubernetes pods.

An NRI plugin for containerd and CRI-O: pods request limits in annotations, and
the plugin enforces them by cgroup v2's io.max, from the container's first
instruction.

    limits.blkio.noderesource.dev/container.db: "/var/lib/postgresql wbps=50Mi"
    limits.blkio.noderesource.dev/containers:   "rootfs wbps=10Mi"
    limits.blkio.noderesource.dev/pod-total:    "* wbps=100Mi"
    weight.blkio.noderesource.dev/container.db: "50"`

func (a *app) rootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nri-blkio",
		Short: "Block I/O limits for Kubernetes pods",
		Long:  rootLong + exitHelp,
		Example: `  nri-blkio devices                 show the node's disks and what each can enforce
  nri-blkio check -f pod.yaml       show the limits that a pod would get on this node
  nri-blkio run                     run the node agent
  nri-blkio status                  show requested limits and limits in force
  nri-blkio owner FILE              name the container whose limit applies to writes to a file`,
		SilenceErrors: true, // app.run prints them, in one line
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: checkFlags,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	f := cmd.PersistentFlags()
	f.StringVar(&a.opts.hostRoot, "host-root", "/", "directory where the node's root filesystem is mounted")
	f.StringVar(&a.opts.cgroupRoot, "cgroup-root", "", "where the node's cgroup v2 is mounted (default HOST-ROOT/sys/fs/cgroup)")
	f.StringVar(&a.opts.logLevel, "log-level", "info", "debug, info, warning or error")
	f.StringVar(&a.opts.logFormat, "log-format", "text", "text or json")
	cmd.AddCommand(
		a.runCommand(), a.checkCommand(), a.statusCommand(),
		a.devicesCommand(), a.ownerCommand(), a.clearCommand(), a.versionCommand(), a.syncCommand(),
	)
	return cmd
}

func (a *app) logger() (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(a.stderr)
	level, err := logrus.ParseLevel(a.opts.logLevel)
	if err != nil {
		return nil, usage(fmt.Errorf("--log-level: %w", err))
	}
	log.SetLevel(level)
	switch a.opts.logFormat {
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	case "json":
		log.SetFormatter(&jsonFormatter{logrus.JSONFormatter{DisableHTMLEscape: true}})
	default:
		return nil, usage(fmt.Errorf("--log-format: unknown value %q (write text or json)", a.opts.logFormat))
	}
	return log, nil
}

// jsonFormatter writes durations as text, "500ms": as a JSON number they are
// nanoseconds, which nobody expects.
type jsonFormatter struct{ logrus.JSONFormatter }

// Format changes the entry, which is logrus's copy for this one line.
func (f *jsonFormatter) Format(e *logrus.Entry) ([]byte, error) {
	for key, value := range e.Data {
		if d, ok := value.(time.Duration); ok {
			e.Data[key] = d.String()
		}
	}
	return f.JSONFormatter.Format(e)
}

// host returns where a path of the node is for this process.
func (o *options) host(p string) string { return filepath.Join(o.hostRoot, p) }

func (o *options) cgroupDir() string {
	if o.cgroupRoot != "" {
		return o.cgroupRoot
	}
	return o.host("/sys/fs/cgroup")
}

func (o *options) sysfs() storage.Sysfs { return storage.NewSysfs(os.DirFS(o.host("/sys"))) }

// storage reads the mounts of the node's first process: those of a container,
// or of a unit with a mount namespace of its own, are others.
func (o *options) storage() (*storage.Storage, error) {
	return storage.Open(storage.Config{
		Sys:       os.DirFS(o.host("/sys")),
		Mountinfo: o.host("/proc/1/mountinfo"),
		HostRoot:  o.hostRoot,
		Swaps:     o.host("/proc/swaps"),
		Proc:      o.host("/proc"),
	})
}

func (o *options) addPolicyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.policy, "policy", "", "the node policy file (default: the built-in policy)")
}

func (o *options) addRootfsFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.runtime.Endpoint, "runtime-endpoint", "", "containerd's socket, which answers where writable layers are stored; "+runtimeconfig.NoEndpoint+": read files only\n(default: that of containerd, k3s, RKE2 or k0s)")
	f.StringVar(&o.runtime.Containerd, "containerd-config", "", "containerd's configuration file, used where the socket has no answer\n(default: that of containerd, k3s, RKE2 or k0s)")
	f.StringVar(&o.rootfs, "rootfs", "", "a directory of the node on the disk that holds the containers' writable layers\n(default: where the runtime keeps them)")
}

func (o *options) addKubeletFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kubeletRoot, "kubelet-root", plugin.DefaultKubeletRoot, "the kubelet's root directory on the node, which holds the pods' volumes")
}

// kubeletDir is where the kubelet keeps the volumes of pods, as it names it to
// the runtime. A directory that was named has to be there; without the default one,
// the node has no kubelet.
func (o *options) kubeletDir() (string, error) {
	if o.kubeletRoot == plugin.DefaultKubeletRoot {
		return o.kubeletRoot, nil
	}
	return o.kubeletRoot, o.checkDir("--kubelet-root", o.kubeletRoot)
}

func (o *options) loadPolicy() (*policy.Policy, error) {
	if o.policy == "" {
		return o.withMode(policy.Default())
	}
	data, err := os.ReadFile(o.policy)
	if err != nil {
		return nil, named(fmt.Errorf("read policy: %w", err))
	}
	p, err := o.parsePolicy(data)
	if err != nil {
		return nil, usage(fmt.Errorf("read %s: %w", o.policy, err))
	}
	return p, nil
}

func (o *options) parsePolicy(data []byte) (*policy.Policy, error) {
	p, err := policy.ParseFile(data)
	if err != nil {
		return nil, err
	}
	return o.withMode(p)
}

func (o *options) withMode(p *policy.Policy) (*policy.Policy, error) {
	switch m := policy.Mode(o.mode); m {
	case "":
	case policy.ModeEnforce, policy.ModeObserve:
		p.Mode = m
	default:
		return nil, usage(fmt.Errorf("--mode: unknown value %q (write %s or %s)", o.mode, policy.ModeEnforce, policy.ModeObserve))
	}
	return p, nil
}

// node is what the commands that resolve paths work with.
type node struct {
	policy  *policy.Policy
	storage *storage.Storage
	memory  uint64 // MemTotal in bytes, 0 where no /proc/meminfo tells it
}

func (o *options) openNode() (*node, error) {
	pol, err := o.loadPolicy()
	if err != nil {
		return nil, err
	}
	s, err := o.storage()
	if err != nil {
		return nil, err
	}
	memory, err := kernel.ReadMemTotal(o.host("/proc/meminfo"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &node{policy: pol, storage: s, memory: memory}, nil
}
