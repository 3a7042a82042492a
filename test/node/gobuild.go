package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// goProgram is a module whose tools are the node's programs. The module files are
// stored as NAME.mod and NAME.sum because a directory with a go.mod cannot be
// embedded. To update one: go get -modfile=NAME.mod -tool PACKAGE@VERSION.
type goProgram struct {
	name    string
	ldflags string
}

var (
	containerd = goProgram{name: "containerd", ldflags: "-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2"}
	kubernetes = goProgram{name: "kubernetes", ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3"}
	helm       = goProgram{name: "helm", ldflags: "-s -w"}

	goPrograms = []goProgram{containerd, kubernetes} // those in the root image
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
		cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-ldflags", p.ldflags,
			"-o", dir+string(filepath.Separator), "tool")
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-buildvcs=false", "GOWORK=off")
		return runQuietly(cmd)
	}
	return artifact{name: p.name, key: cacheKey(string(mod), string(sum), p.ldflags, "1"), build: build}, nil
}
