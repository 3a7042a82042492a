package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// The node that the goals are set for.
const (
	pods         = 250
	mountsOfAPod = 20 // 5,000 in all
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	base       = "/var/lib/bench"
	kubelet    = base + "/kubelet"
	sandboxes  = base + "/io.containerd.grpc.v1.cri/sandboxes"
	layers     = "/var/lib/bench-layers" // stands for what is mounted as a container's root
	volumes    = "/mnt/ext4/bench"       // another disk
)

// pod has the facts that a runtime knows about a pod, with its directories, mounts and
// cgroups in the node.
type pod struct {
	index   int
	sandbox *api.PodSandbox
	db      *api.Container
	sidecar *api.Container
	running map[string]*exec.Cmd // the process of each container, by the container's ID
}

// newPod makes a pod with two containers and mountsOfAPod mounts.
func newPod(i int) (*pod, error) {
	slice := fmt.Sprintf("/kubepods.slice/kubepods-pod%04d.slice", i)
	p := &pod{index: i, running: map[string]*exec.Cmd{}, sandbox: &api.PodSandbox{
		Id: fmt.Sprintf("%064x", 1000+i), Name: fmt.Sprintf("db-%d", i), Namespace: "prod", Uid: fmt.Sprintf("%08x-98b4-4e53-8c3e-7d8d2d5a5b1b", i),
		Annotations: annotations(), RuntimeHandler: "runc", Linux: &api.LinuxPodSandbox{CgroupParent: slice},
	}}
	p.db, p.sidecar = p.container("db", 0), p.container("sidecar", 0)
	return p, errors.Join(p.addMounts(), p.addCgroups())
}

func (p *pod) dir() string { return kubelet + "/pods/" + p.sandbox.Uid }

func (p *pod) volume() string { return p.dir() + "/volumes/kubernetes.io~csi/pvc-1/mount" }

// container is the given generation of one of the pod's containers.
func (p *pod) container(name string, generation int) *api.Container {
	id := fmt.Sprintf("%08x%052x%04x", generation, p.index, len(name))
	scope := filepath.Base(p.sandbox.Linux.CgroupParent) + ":cri-containerd:" + id
	if cri.Parameter("driver") == "cgroupfs" {
		scope = p.sandbox.Linux.CgroupParent + "/" + id
	}
	return &api.Container{
		Id: id, PodSandboxId: p.sandbox.Id, Name: name, State: api.ContainerState_CONTAINER_RUNNING,
		Mounts: p.mounts(), Linux: &api.LinuxContainer{CgroupsPath: scope},
		Args: []string{"/usr/bin/" + name, "--config", "/etc/" + name + ".conf"},
		Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + p.sandbox.Name},
	}
}

// mounts are 15: new filesystems, what the kubelet and containerd put into each
// container, a volume of CSI, two emptyDirs and the token.
func (p *pod) mounts() []*api.Mount {
	fresh := func(kind, at string) *api.Mount {
		return &api.Mount{Type: kind, Source: kind, Destination: at, Options: []string{"nosuid", "noexec", "nodev"}}
	}
	bind := func(from, at string) *api.Mount {
		return &api.Mount{Type: "bind", Source: from, Destination: at, Options: []string{"rbind", "rprivate", "rw"}}
	}
	cri := sandboxes + "/" + p.sandbox.Id
	return []*api.Mount{
		fresh("proc", "/proc"), fresh("tmpfs", "/dev"), fresh("devpts", "/dev/pts"),
		fresh("mqueue", "/dev/mqueue"), fresh("sysfs", "/sys"), fresh("cgroup", "/sys/fs/cgroup"),
		bind(p.dir()+"/etc-hosts", "/etc/hosts"),
		bind(p.dir()+"/containers/db/8a3c5d7e", "/dev/termination-log"),
		bind(cri+"/hostname", "/etc/hostname"),
		bind(cri+"/resolv.conf", "/etc/resolv.conf"),
		bind(cri+"/shm", "/dev/shm"),
		bind(p.dir()+"/volumes/kubernetes.io~projected/kube-api-access-0", "/var/run/secrets/kubernetes.io/serviceaccount"),
		bind(p.dir()+"/volumes/kubernetes.io~empty-dir/tmp", "/tmp"),
		bind(p.dir()+"/volumes/kubernetes.io~empty-dir/cache", "/cache"),
		bind(p.volume(), "/data"),
	}
}

// addMounts makes the pod's directories and mounts.
func (p *pod) addMounts() error {
	cri := sandboxes + "/" + p.sandbox.Id
	for _, dir := range []string{p.dir() + "/containers/db", p.dir() + "/volumes/kubernetes.io~empty-dir/tmp", p.dir() + "/volumes/kubernetes.io~empty-dir/cache", cri} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{p.dir() + "/etc-hosts", p.dir() + "/containers/db/8a3c5d7e", cri + "/hostname", cri + "/resolv.conf"} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(layers, 0o755); err != nil {
		return err
	}
	var errs []error
	for k := range 8 {
		errs = append(errs, mount("tmpfs", fmt.Sprintf("%s/volumes/kubernetes.io~projected/kube-api-access-%d", p.dir(), k)))
	}
	const others = 8 + 2 // and shm and the volume
	for k := range mountsOfAPod - others {
		at := fmt.Sprintf("%s/io.containerd.runtime.v2.task/k8s.io/%060x%04x/rootfs", base, p.index, k)
		errs = append(errs, mount(layers, at))
	}
	errs = append(errs, mount("tmpfs", cri+"/shm"), p.mountVolume())
	return errors.Join(errs...)
}

func (p *pod) mountVolume() error {
	from := fmt.Sprintf("%s/pvc-%d", volumes, p.index)
	if err := os.MkdirAll(from, 0o755); err != nil {
		return err
	}
	return mount(from, p.volume())
}

// mount mounts a tmpfs or binds a directory.
func mount(from, at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	kind, flags := "", uintptr(syscall.MS_BIND)
	if from == "tmpfs" {
		kind, flags = "tmpfs", 0
	}
	if err := syscall.Mount(from, at, kind, flags, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, at, err)
	}
	return nil
}

func (p *pod) addCgroups() error {
	return errors.Join(p.addCgroup(p.db), p.addCgroup(p.sidecar))
}

// addCgroup makes a container's cgroup, with the io controller, and runs a process in it. Without one the plugin
// takes the container for one that is not running yet, and tries its limits again and again.
func (p *pod) addCgroup(c *api.Container) error {
	dir := cgroupRoot
	for name := range strings.SplitSeq(strings.Trim(p.scope(c), "/"), "/") {
		err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+io +memory"), 0o644)
		if err != nil {
			return err
		}
		dir += "/" + name
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	cgroup, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	p.running[c.Id] = cmd
	return cmd.Start()
}

// removeCgroup ends the process of a container, and removes the container's cgroup.
func (p *pod) removeCgroup(c *api.Container) error {
	cmd := p.running[c.Id]
	delete(p.running, c.Id)
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // the error is the signal
	return os.Remove(cgroupRoot + p.scope(c))
}

// scope is the path of a container's cgroup.
func (p *pod) scope(c *api.Container) string {
	if cri.Parameter("driver") == "cgroupfs" {
		return c.Linux.CgroupsPath
	}
	return p.sandbox.Linux.CgroupParent + "/cri-containerd-" + c.Id + ".scope"
}
