package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// goProgram is a module whose tools are the node's programs. The module files are
// stored as NAME.mod and NAME.sum because a directory with a go.mod cannot be
// embedded. To update one: go get -modfile=NAME.mod -tool PACKAGE@VERSION.
type goProgram struct {
	name    string
	ldflags string
	tags    string
	native  string // "MODULE DIRECTORY": C sources of a module, which become a program of the same name
}

var (
	containerd = goProgram{name: "containerd", ldflags: "-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2"}
	kubernetes = goProgram{name: "kubernetes", ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3"}
	helm       = goProgram{name: "helm", ldflags: "-s -w"}

	crio = goProgram{
		name: "crio", ldflags: "-s -w",
		tags:   "containers_image_ostree_stub containers_image_openpgp exclude_graphdriver_btrfs btrfs_noversion",
		native: "github.com/cri-o/cri-o pinns", // sets up the namespaces of a pod
	}
)

// artifact holds the programs, built static so that any root can run them.
func (p goProgram) artifact() (artifact, error) {
	mod, err := buildFiles.ReadFile("build/" + p.name + ".mod")
	if err != nil {
		return artifact{}, err
	}
	sum, err := buildFiles.ReadFile("build/" + p.name + ".sum")
	if err != nil {
		return artifact{}, err
	}
	build := func(ctx context.Context, dir string) error {
		src, err := os.MkdirTemp("", "node-"+p.name+"-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(src)
		for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
			if err := os.WriteFile(filepath.Join(src, name), data, 0o644); err != nil {
				return err
			}
		}
		cmd := goCommand(ctx, src, "build", "-mod=readonly", "-trimpath", "-tags", p.tags, "-ldflags", p.ldflags,
			"-o", dir+string(filepath.Separator), "tool")
		if err := runQuietly(cmd); err != nil || p.native == "" {
			return err
		}
		return p.buildNative(ctx, src, dir)
	}
	return artifact{name: p.name, key: cacheKey(string(mod), string(sum), p.ldflags+p.tags+p.native, "1"), build: build}, nil
}

// buildNative needs gcc and libc6-dev, as the race detector does.
func (p goProgram) buildNative(ctx context.Context, src, dir string) error {
	module, name, _ := strings.Cut(p.native, " ")
	at, err := goCommand(ctx, src, "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("find the sources of %s: %w", name, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(at)), name, "src", "*.c"))
	if err != nil {
		return err
	}
	args := append([]string{"-std=c99", "-O2", "-static", "-s", "-o", filepath.Join(dir, name)}, files...)
	return runQuietly(exec.CommandContext(ctx, "gcc", args...))
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	return cmd
}

// Kubernetes returns the directory of the programs of Kubernetes that a node has: kube-apiserver,
// kube-controller-manager, kube-scheduler, kubectl, kubelet, and etcd under the name server. It builds
// them unless the cache has them. They are static.
func Kubernetes(ctx context.Context, cfg Config) (string, error) {
	return kubernetes.get(ctx, cfg)
}

// Helm returns the file of the program helm, which it builds unless the cache has it. It is static.
func Helm(ctx context.Context, cfg Config) (string, error) {
	dir, err := helm.get(ctx, cfg)
	return filepath.Join(dir, "helm"), err
}

// get returns the directory of the programs.
func (p goProgram) get(ctx context.Context, cfg Config) (string, error) {
	a, err := p.artifact()
	if err != nil {
		return "", err
	}
	return getLocked(ctx, cfg, a)
}

// getLocked returns the directory of an artifact, and holds the lock of the cache meanwhile.
func getLocked(ctx context.Context, cfg Config, a artifact) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, BuildTimeout)
	defer cancel()
	c, err := openCache(cfg)
	if err != nil {
		return "", err
	}
	unlock, err := c.lock(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer unlock()
	return c.get(ctx, cfg, a)
}
