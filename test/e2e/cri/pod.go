package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CgroupRoot is where cgroup v2 is mounted; cgroup paths here are below it.
const CgroupRoot = "/sys/fs/cgroup"

// Image is the image of the test containers; see test/image. CRI-O takes only full names.
const Image = "docker.io/local/iotool:1"

func exists(cgroup string) bool {
	_, err := os.Stat(filepath.Join(CgroupRoot, cgroup))
	return err == nil
}

// PodConfig has the properties of a pod that tests choose.
type PodConfig struct {
	Name        string
	UID         string // default: Name and "-uid"
	Attempt     uint32 // the kubelet counts the sandboxes of a pod by it
	Namespace   string // default: "default"
	QoS         string // default: BestEffort
	Annotations map[string]string
	Labels      map[string]string
	Privileged  bool // its containers may be
	// OwnProcesses gives each container a PID namespace of its own, as the kubelet does by default.
	// Without it the containers share the sandbox's, as with shareProcessNamespace.
	OwnProcesses bool
	// Logs is the directory of its log directory; default: /var/log/pods.
	Logs string
}

// Pod is a running sandbox.
type Pod struct {
	ID     string
	Name   string
	UID    string
	Cgroup string // of the pod as a whole

	client *Client
	config *runtimeapi.PodSandboxConfig
}

// RunPod starts a pod without containers. It shares the host's network, so the
// node needs no network plugin.
func (c *Client) RunPod(ctx context.Context, cfg PodConfig) (*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if cfg.UID == "" {
		cfg.UID = cfg.Name + "-uid"
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "default"
	}
	if cfg.QoS == "" {
		cfg.QoS = BestEffort
	}
	if cfg.Logs == "" {
		cfg.Logs = "/var/log/pods"
	}
	labels := map[string]string{
		"io.kubernetes.pod.name":      cfg.Name,
		"io.kubernetes.pod.namespace": cfg.Namespace,
		"io.kubernetes.pod.uid":       cfg.UID,
	}
	maps.Copy(labels, cfg.Labels)
	processes := runtimeapi.NamespaceMode_POD
	if cfg.OwnProcesses {
		processes = runtimeapi.NamespaceMode_CONTAINER
	}
	p := &Pod{client: c, Name: cfg.Name, UID: cfg.UID, Cgroup: c.podParent(cfg.QoS, cfg.UID)}
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: cfg.Name, Uid: cfg.UID, Namespace: cfg.Namespace, Attempt: cfg.Attempt},
		Labels:       labels,
		Annotations:  cfg.Annotations,
		LogDirectory: filepath.Join(cfg.Logs, cfg.Namespace+"_"+cfg.Name+"_"+cfg.UID),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: p.Cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				Privileged:       cfg.Privileged,
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: processes},
			},
		},
	}
	if err := p.makeCgroup(); err != nil {
		return nil, err
	}
	answer, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run pod %s: %w", cfg.Name, err), c.removeCgroup(ctx, p.Cgroup))
	}
	p.ID = answer.PodSandboxId
	return p, nil
}

// makeCgroup makes the pod's cgroup as the kubelet does. With the systemd driver
// the slice comes with the sandbox's scope.
func (p *Pod) makeCgroup() error {
	if p.client.driver != "cgroupfs" {
		return nil
	}
	return os.MkdirAll(filepath.Join(CgroupRoot, p.Cgroup), 0o755)
}

// removeCgroup removes it as the kubelet does, which first kills what is left there: a
// runtime that restarts can leave the processes of a pod that it no longer knows, and
// systemd would wait 90 s for the end of one that ignores SIGTERM. It keeps an empty slice.
func (c *Client) removeCgroup(ctx context.Context, pod string) error {
	dir := filepath.Join(CgroupRoot, pod)
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) // an error means that it is gone
	if c.driver != "cgroupfs" {
		return stopSlices(ctx, path.Base(pod))
	}
	for {
		err := removeEmpty(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removeEmpty removes a cgroup and those below it, if no process is in them.
func removeEmpty(dir string) error {
	below, err := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, procs := range below {
		if err := removeEmpty(filepath.Dir(procs)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// stopSlices stops the units that match the pattern.
func stopSlices(ctx context.Context, pattern string) error {
	if out, err := exec.CommandContext(ctx, "systemctl", "stop", pattern).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl stop %s: %w: %s", pattern, err, out)
	}
	return nil
}

// RemoveSandbox stops and removes this sandbox of the pod with its containers,
// and leaves the pod's cgroup.
func (p *Pod) RemoveSandbox(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.client.removeSandbox(ctx, p.ID)
}

// Remove stops and removes the pod with its containers.
func (p *Pod) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	removed := whileBusy(ctx, func() error { return p.client.removeSandbox(ctx, p.ID) })
	err := errors.Join(removed, p.client.removeCgroup(ctx, p.Cgroup), os.RemoveAll(p.config.LogDirectory))
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Name, err)
	}
	return nil
}

// Containers returns the names of the pod's containers, whatever their state.
func (p *Pod) Containers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := p.client.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.ID},
	})
	if err != nil {
		return nil, fmt.Errorf("list containers of pod %s: %w", p.Name, err)
	}
	var names []string
	for _, item := range list.Containers {
		names = append(names, item.Metadata.Name)
	}
	return names, nil
}

// Mount binds a host path into a container.
type Mount struct {
	Host, Path string
	ReadOnly   bool
	Propagated bool // what the host mounts below it later comes in (HostToContainer)
}

// ContainerConfig has the properties of a container that tests choose.
type ContainerConfig struct {
	Name    string
	Command []string // default: iotool
	Args    []string // default: sleep
	Mounts  []Mount
	// Devices are raw block volumes: nodes of the host by their paths in the container.
	Devices map[string]string
	Memory  int64 // limit in bytes; 0 for none
	// Unified are files of the cgroup that the runtime writes.
	Unified map[string]string
	// Privileged containers may use any device; their pod has to be privileged as well.
	Privileged bool
}

// Create creates a container and does not start it.
func (p *Pod) Create(ctx context.Context, cfg ContainerConfig) (*Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: cfg.Name},
		Image:    &runtimeapi.ImageSpec{Image: Image},
		Command:  cfg.Command,
		Args:     cfg.Args,
		LogPath:  cfg.Name + ".log",
		Labels: map[string]string{
			"io.kubernetes.pod.name":       p.Name,
			"io.kubernetes.pod.namespace":  p.config.Metadata.Namespace,
			"io.kubernetes.pod.uid":        p.UID,
			"io.kubernetes.container.name": cfg.Name,
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: cfg.Memory, CpuShares: 2, Unified: cfg.Unified},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				Privileged:       cfg.Privileged,
				NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions,
			},
		},
	}
	for _, m := range cfg.Mounts {
		mount := &runtimeapi.Mount{HostPath: m.Host, ContainerPath: m.Path, Readonly: m.ReadOnly}
		if m.Propagated {
			mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		}
		config.Mounts = append(config.Mounts, mount)
	}
	for _, path := range slices.Sorted(maps.Keys(cfg.Devices)) {
		config.Devices = append(config.Devices, &runtimeapi.Device{ContainerPath: path, HostPath: cfg.Devices[path], Permissions: "mrw"})
	}
	answer, err := p.client.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.ID, Config: config, SandboxConfig: p.config,
	})
	if err != nil {
		return nil, err // as the runtime gives it: tests look at each byte
	}
	k := &Container{client: p.client, ID: answer.ContainerId, Name: cfg.Name}
	k.Cgroup = path.Join(p.Cgroup, p.client.leaf(k.ID))
	k.Log = filepath.Join(p.config.LogDirectory, config.LogPath)
	return k, nil
}

// Run creates and starts a container.
func (p *Pod) Run(ctx context.Context, cfg ContainerConfig) (*Container, error) {
	k, err := p.Create(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("create container %s of pod %s: %w", cfg.Name, p.Name, err)
	}
	if err := k.Start(ctx); err != nil {
		return nil, fmt.Errorf("start container %s of pod %s: %w", cfg.Name, p.Name, err)
	}
	return k, nil
}

// logText takes the text out of the CRI's log lines, "TIME stdout F TEXT".
func logText(data string) string {
	var b strings.Builder
	for line := range strings.Lines(data) {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) == 4 {
			b.WriteString(fields[3])
		}
	}
	return b.String()
}
