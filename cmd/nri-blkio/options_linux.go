package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// app is the process as the commands see it, with the flags that they share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	openCgroups    func(dir string) (*cgroupfs.Hierarchy, error)
	newRepairer    func(repair.Config) (*repair.Repairer, error)
	listen         func(ctx context.Context, network, address string) (net.Listener, error)
	attach         func() (why.Observer, error)
	sample         time.Duration // how long status measures the use of limits
	opts           options
}

func newApp() *app {
	var sockets net.ListenConfig
	return &app{
		openCgroups: cgroupfs.OpenHierarchy, newRepairer: repair.New, listen: sockets.Listen, sample: time.Second,
		attach: func() (why.Observer, error) { return wait.Attach() },
	}
}

// preinstalled returns the arguments, or those for a process that the runtime has started from
// /opt/nri/plugins, without any.
func (a *app) preinstalled(args []string) []string {
	if len(args) > 0 || a.getenv(pluginSocketEnv) == "" {
		return args
	}
	a.opts.preinstalled = true
	return []string{"run"}
}

func (a *app) nodeCommands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(), a.statusCommand(), a.devicesCommand(), a.ownerCommand(), a.calibrateCommand(), a.clearCommand(), a.whyCommand(), a.topCommand(), a.syncCommand(), a.awaitCommand(),
	}
}

// A container's environment names where the node is mounted. So the flags are not needed in
// "kubectl exec".
const (
	hostRootEnv   = "NRI_BLKIO_HOST_ROOT"
	cgroupRootEnv = "NRI_BLKIO_CGROUP_ROOT"
)

func (a *app) addNodeFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&a.opts.hostRoot, "host-root", cmp.Or(a.getenv(hostRootEnv), "/"), "directory where the node's root filesystem is mounted\n(environment: "+hostRootEnv+")")
	f.StringVar(&a.opts.cgroupRoot, "cgroup-root", a.getenv(cgroupRootEnv), "where the node's cgroup v2 is mounted\n(environment: "+cgroupRootEnv+"; default HOST-ROOT/sys/fs/cgroup)")
	f.StringVar(&a.opts.logLevel, "log-level", "info", "debug, info, warning or error")
	f.StringVar(&a.opts.logFormat, "log-format", "text", "text or json")
	completes(cmd, "log-level", "debug", "info", "warning", "error")
	completes(cmd, "log-format", "text", "json")
}

// options has the flags that more than one command has.
type options struct {
	hostRoot   string
	cgroupRoot string
	logLevel   string
	logFormat  string

	policy      string
	runtime     runtimeconfig.Config
	kubeletRoot string
	orphanGrace time.Duration // see inspect.Host
	mode        string        // overrides the policy's mode; "" keeps it
	stateDir    string
	// calibrationDir has the results of calibrate.
	calibrationDir string

	preinstalled bool // true if the runtime started this process; not a flag
}

// host returns the path at which this process finds a path of the node.
func (o *options) host(p string) string { return filepath.Join(o.hostRoot, p) }

func (o *options) cgroupDir() string { return cmp.Or(o.cgroupRoot, o.host("/sys/fs/cgroup")) }

func (o *options) sysfs() storage.Sysfs { return storage.NewSysfs(os.DirFS(o.host("/sys"))) }

func (o *options) disks() weights.NodeDisks {
	return weights.NodeDisks{
		Sysfs: o.sysfs(), SysfsDir: o.host("/sys"), UdevData: os.DirFS(o.host("/run/udev/data")), CalibrationDir: o.host(o.calibrationDir),
	}
}

func (o *options) storage() (*storage.Storage, error) { return storage.Open(o.storageConfig()) }

// storageConfig names the files of the node, with the mounts of the node's first process. This process may
// be in another mount namespace, as in a container or in a systemd unit.
func (o *options) storageConfig() storage.Config {
	return storage.Config{
		Sys:       os.DirFS(o.host("/sys")),
		Mountinfo: o.host("/proc/1/mountinfo"),
		HostRoot:  o.hostRoot,
		Swaps:     o.host("/proc/swaps"),
		Proc:      o.host("/proc"),
		UdevData:  os.DirFS(o.host("/run/udev/data")),
	}
}

func (a *app) cgroups() (*cgroupfs.Hierarchy, error) { return a.openCgroups(a.opts.cgroupDir()) }

func (a *app) host() (*inspect.Host, error) {
	o := &a.opts
	kubeletRoot, err := o.kubeletDir()
	if err != nil {
		return nil, err
	}
	tree, err := a.cgroups()
	if err != nil {
		return nil, err
	}
	h := &inspect.Host{
		Cgroups: tree, Sysfs: o.sysfs(), Root: hostfs.Root(o.hostRoot),
		Proc:     os.DirFS(o.host("/proc")),
		Bursts:   burstFile(o.host(o.stateDir)),
		StateDir: o.host(o.stateDir), KubeletRoot: kubeletRoot, OrphanGrace: o.orphanGrace,
	}
	h.Storage, h.StorageErr = o.storage()
	return h, nil
}

func (o *options) addRootfsFlags(cmd *cobra.Command) {
	o.addEndpointFlag(cmd, "containerd's socket, asked for the location of writable layers; "+runtimeconfig.NoEndpoint+": read files only\n(default: that of containerd, k3s, RKE2 or k0s)")
	f := cmd.Flags()
	f.StringVar(&o.runtime.Containerd, "containerd-config", "", "containerd's configuration file, read if the socket does not answer\n(default: that of containerd, k3s, RKE2 or k0s)")
	f.StringVar(&o.runtime.Rootfs, "rootfs", "", "a directory of the node on the disk that holds the containers' writable layers\n(default: where the runtime keeps them)")
}

func (o *options) addEndpointFlag(cmd *cobra.Command, help string) {
	cmd.Flags().StringVar(&o.runtime.Endpoint, "runtime-endpoint", "", help)
}

func (o *options) addKubeletFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kubeletRoot, "kubelet-root", plugin.DefaultKubeletRoot, "the kubelet's root directory on the node, which holds the pods' volumes")
}

// burstFile returns where the credits of bursts are kept in a state directory. Without the ID of the boot no credits outlive the process.
func burstFile(stateDir string) *burst.File {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &burst.File{Path: health.File(stateDir, "bursts"), Boot: strings.TrimSpace(string(id)), Now: hostfs.SinceBoot}
}

// defaultStateDir is a directory on a tmpfs. It has the reports of the parts of run.
const defaultStateDir = "/run/nri-blkio"

func (o *options) addStateFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.stateDir, "state-dir", defaultStateDir, "directory where run writes its state for the other commands")
}

func (o *options) reportFile() string { return health.File(o.stateDir, health.Writeback) }

// defaultCalibrationDir outlives restarts of the node.
const defaultCalibrationDir = "/var/lib/nri-blkio/calibration"

func (o *options) addCalibrationFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.calibrationDir, "calibration-dir", defaultCalibrationDir, "directory of the node where calibrate saves the models of disks")
}

// checkRuntimeFlags rejects flags that name files that the node does not have. With such a flag,
// the wrong disk would be found for writable layers.
func (o *options) checkRuntimeFlags() error {
	o.runtime.HostRoot = o.hostRoot
	if err := o.runtime.Validate(); err != nil {
		return usage(err)
	}
	if o.runtime.Rootfs == "" {
		return nil
	}
	return o.checkDir("--rootfs", o.runtime.Rootfs)
}

func (o *options) checkDir(flag, dir string) error {
	if !path.IsAbs(dir) {
		return usage(fmt.Errorf("%s: %q is not an absolute path", flag, dir))
	}
	info, err := os.Stat(o.host(dir))
	if err != nil {
		return named(fmt.Errorf("%s: %w", flag, err))
	}
	if !info.IsDir() {
		return usage(fmt.Errorf("%s: %q is not a directory", flag, dir))
	}
	return nil
}

// kubeletDir returns the kubelet's root directory, as a path of the node. A directory that
// --kubelet-root names must exist. The default directory need not: a node can be without a kubelet.
func (o *options) kubeletDir() (string, error) {
	if o.kubeletRoot == plugin.DefaultKubeletRoot {
		return o.kubeletRoot, nil
	}
	return o.kubeletRoot, o.checkDir("--kubelet-root", o.kubeletRoot)
}

func (o *options) addVolumeFlags(cmd *cobra.Command) {
	o.addKubeletFlag(cmd)
	const grace = "orphan-grace"
	cmd.Flags().DurationVar(&o.orphanGrace, grace, inspect.DefaultOrphanGrace, "how old a pod's directory must be for its volumes to count as orphaned")
	// This flag is for tests, because a directory cannot be given an old change time. It was defined above.
	_ = cmd.Flags().MarkHidden(grace)
}

// podFlag is the flag --pod NAMESPACE/NAME.
type podFlag struct{ inspect.Filter }

func (f *podFlag) add(a *app, cmd *cobra.Command, usage string) {
	const name = "pod"
	cmd.Flags().Var(f, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, a.completed(recordedPod)) // it was defined above
}

// Type names the flag's value in help texts.
func (f *podFlag) Type() string { return "namespace/name" }

// Set checks the value as the flags are parsed.
func (f *podFlag) Set(s string) (err error) {
	f.Filter, err = inspect.ParseFilter(s)
	return err
}

// podsFlags select the pods of a report.
type podsFlags struct {
	pod       podFlag
	namespace string
	selector  string
}

func (f *podsFlags) add(a *app, cmd *cobra.Command) {
	const namespace = "namespace"
	f.pod.add(a, cmd, "only this pod")
	cmd.Flags().StringVarP(&f.namespace, namespace, "n", "", "only the pods of this namespace")
	cmd.Flags().BoolP("all-namespaces", "A", false, "the pods of all namespaces (the default)")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "only pods with these `labels`, such as app=db: those that they had when the\nruntime created them")
	cmd.MarkFlagsMutuallyExclusive("pod", namespace, "all-namespaces")
	cmd.MarkFlagsMutuallyExclusive("pod", "selector")
	// It was defined above.
	_ = cmd.RegisterFlagCompletionFunc(namespace, a.completed(func(r *record.Record, _ []string) []string { return []string{r.Namespace} }))
}

const endpointForLabels = "the runtime's socket, asked for the labels of pods with --selector\n(default: that of containerd, CRI-O, k3s, RKE2 or k0s)"

// filter asks the runtime for the pods with the labels, if there is a selector.
func (f *podsFlags) filter(ctx context.Context, a *app) (inspect.Filter, error) {
	out := f.pod.Filter
	if f.namespace != "" {
		out.Namespace = f.namespace
	}
	if f.selector == "" {
		return out, nil
	}
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return out, usage(fmt.Errorf("--selector: %w", err))
	}
	a.opts.runtime.HostRoot = a.opts.hostRoot
	pods, err := a.opts.runtime.Pods(ctx)
	if err != nil {
		return out, fmt.Errorf("--selector: the runtime does not tell the labels of pods: %w", err)
	}
	selected := map[string]bool{}
	for _, p := range pods {
		if selector.Matches(labels.Set(p.Labels)) {
			selected[p.Namespace+"/"+p.Name] = true
		}
	}
	return out.Among(selected), nil
}

// completionTime is how long a shell waits for words.
const completionTime = 500 * time.Millisecond

// completed returns a function that has a shell complete words of the records on the node, and of more. args are the arguments before the word.
func (a *app) completed(words func(r *record.Record, args []string) []string, more ...func() []*record.Record) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found := make(chan []string, 1)
		go func() { found <- a.recordedWords(words, args, more...) }()
		select {
		case out := <-found:
			return out, cobra.ShellCompDirectiveNoFileComp
		case <-time.After(completionTime):
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// recordedWords returns the words of all records that can be read, each once. It leaves out what a terminal could not show.
func (a *app) recordedWords(words func(r *record.Record, args []string) []string, args []string, more ...func() []*record.Record) (out []string) {
	tree, err := a.cgroups()
	if err != nil {
		return nil
	}
	defer tree.Close()
	records, _ := inspect.Records(tree, inspect.Filter{}) // those that can be read
	for _, r := range records {
		out = append(out, words(r.Record, args)...)
	}
	for _, records := range more {
		for _, r := range records() {
			out = append(out, words(r, args)...)
		}
	}
	out = slices.DeleteFunc(out, func(word string) bool { return word == "" || terminal.Escape(word) != word })
	slices.Sort(out)
	return slices.Compact(out)
}

// running returns the names of all pods that the runtime has, as records have them. Without an answer there are none.
func (a *app) running() []*record.Record {
	a.opts.runtime.HostRoot = a.opts.hostRoot
	ctx, cancel := context.WithTimeout(context.Background(), completionTime/2) // those with records are shown anyway
	defer cancel()
	pods, _ := a.opts.runtime.Pods(ctx)
	return recordsOf(pods)
}

func recordedPod(r *record.Record, _ []string) []string {
	return []string{inspect.Filter{Namespace: r.Namespace, Name: r.Pod}.String()}
}

func recordedDisks(r *record.Record, _ []string) []string {
	return slices.Collect(maps.Values(r.Disks))
}

// recordsOf returns records with the names of pods and of their containers.
func recordsOf(pods []runtimeconfig.Pod) (out []*record.Record) {
	for _, p := range pods {
		out = append(out, &record.Record{Namespace: p.Namespace, Pod: p.Name})
		for _, container := range p.Containers {
			out = append(out, &record.Record{Namespace: p.Namespace, Pod: p.Name, Container: container})
		}
	}
	return out
}

// recordedTarget completes a pod, and after it a container of that pod.
func recordedTarget(r *record.Record, args []string) []string {
	switch pod := recordedPod(r, nil); {
	case len(args) == 0:
		return pod
	case len(args) == 1 && (args[0] == pod[0] || args[0] == r.Pod):
		return []string{r.Container}
	}
	return nil
}
