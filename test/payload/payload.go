// Package payload builds the files that run in a node. All programs are static.
package payload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Guest is where a node finds the payload.
const Guest = "/payload"

// Program is one more thing to build: a package of this module, as a program
// or as a test binary.
type Program struct {
	Name    string // of the file
	Package string // "./e2e/limits"
	Test    bool
	Cluster bool // it needs what addCluster writes
	Deb     bool // it needs the Debian package
}

// Tests returns the test binary of a folder of test/e2e.
func Tests(folder string) Program {
	return Program{Name: folder + ".test", Package: "./e2e/" + folder, Test: true, Cluster: folder == "cluster", Deb: folder == "deploy"}
}

// Image is the name of the image of nri-blkio, as deploy/ has it.
const Image = repository + ":latest"

// step is a call of go in a directory.
type step struct {
	where string
	args  []string
}

// Build writes the files for a node into dir: those of Small, the image of nri-blkio (nri-blkio.tar), the files
// of deploy/, the how-tos, the tutorial, and for the programs that need it what addCluster writes, and the Debian package without the
// program (nri-blkio.deb).
// module is the directory of the test module.
func Build(ctx context.Context, module, dir string, programs ...Program) error {
	if err := Small(ctx, module, dir, programs...); err != nil {
		return err
	}
	steps := []step{{module, []string{
		"run", "-trimpath", "./image", "-o", filepath.Join(dir, "nri-blkio.tar"),
		"-name", Image, "-path", "nri-blkio", "-binary", filepath.Join(dir, "nri-blkio"),
	}}}
	if slices.ContainsFunc(programs, func(p Program) bool { return p.Deb }) {
		steps = append(steps, step{
			filepath.Join(module, "../tools/release"), []string{"run", "./package", "-o", filepath.Join(dir, "nri-blkio.deb")},
		})
	}
	if err := play(ctx, steps); err != nil {
		return err
	}
	if slices.ContainsFunc(programs, func(p Program) bool { return p.Cluster }) {
		if err := addCluster(ctx, module, dir); err != nil {
			return err
		}
	}
	for _, name := range []string{"deploy", "docs/how-to", "docs/tutorial"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(module, "..", name))); err != nil {
			return err
		}
	}
	return nil
}

// Small writes the files without which nothing can be tested into dir: nri-blkio, the image of the test containers
// (iotool.tar), and the programs.
func Small(ctx context.Context, module, dir string, programs ...Program) error {
	steps := []step{
		{filepath.Join(module, ".."), []string{"build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "nri-blkio"), "./cmd/nri-blkio"}},
		{module, []string{"run", "-trimpath", "./image", "-o", filepath.Join(dir, "iotool.tar")}},
	}
	for _, p := range programs {
		args := []string{"build", "-trimpath"}
		if p.Test {
			args = []string{"test", "-c", "-ldflags=-s"} // smaller: an emulated node takes a while to receive it
		}
		steps = append(steps, step{module, append(args, "-o", filepath.Join(dir, p.Name), p.Package)})
	}
	return play(ctx, steps)
}

// play runs the steps, one after another.
func play(ctx context.Context, steps []step) error {
	for _, s := range steps {
		cmd := exec.CommandContext(ctx, "go", s.args...)
		cmd.Dir = s.where
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the node has another libc
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
	}
	return nil
}
