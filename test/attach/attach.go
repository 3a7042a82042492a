// Package attach runs a test binary in a node that runs already, such as that of
// "make node". So a single test takes seconds instead of a boot.
package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/test/payload"
)

// Variable is the environment variable that names the file which "node up --env" writes.
const Variable = "E2E_NODE"

// Run builds the payload with the test binary of a package, copies it to the node of file,
// and runs it there with the arguments of this test binary. It returns the status. module is the directory of the test
// module.
func Run(ctx context.Context, file, module string, test payload.Program, args []string) (int, error) {
	ssh, err := readSSH(file)
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "payload")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := payload.Build(ctx, module, dir, test); err != nil {
		return 1, err
	}
	if slices.Contains(args, "-proof") || slices.Contains(args, "-proof=true") {
		if err := payload.AddEarlier(ctx, module, dir, test); err != nil {
			return 1, err
		}
	}
	if err := copyTo(ctx, ssh, dir); err != nil {
		return 1, err
	}
	cmd := remote(ctx, ssh, append([]string{path.Join(payload.Guest, test.Name)}, forward(args)...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// readSSH returns the words of the ssh command. The file has one line, NODE_SSH='ssh ...'.
func readSSH(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s, which \"make node\" writes: %w", Variable, err)
	}
	value, found := strings.CutPrefix(strings.TrimSpace(string(data)), "NODE_SSH='")
	words := strings.Fields(strings.TrimSuffix(value, "'"))
	if !found || len(words) == 0 {
		return nil, fmt.Errorf("read %s: %s has no NODE_SSH='ssh ...'", Variable, file)
	}
	return words, nil
}

// copyTo copies the contents of dir into the payload's directory of the node.
func copyTo(ctx context.Context, ssh []string, dir string) error {
	pack := exec.CommandContext(ctx, "tar", "-c", "-C", dir, ".")
	unpack := remote(ctx, ssh, "sh", "-c", `mkdir -p "$1" && tar -x -C "$1"`, "sh", payload.Guest)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	pack.Stdout, pack.Stderr = w, os.Stderr
	unpack.Stdin, unpack.Stdout, unpack.Stderr = r, io.Discard, os.Stderr
	if err := errors.Join(pack.Start(), unpack.Start()); err != nil {
		return fmt.Errorf("copy the payload to the node: %w", err)
	}
	// Each end sees that the other one has ended once this process has closed its own.
	if err := errors.Join(w.Close(), r.Close(), pack.Wait(), unpack.Wait()); err != nil {
		return fmt.Errorf("copy the payload to the node: %w", err)
	}
	return nil
}

// remote returns the command that runs words in the node as they are.
func remote(ctx context.Context, ssh []string, words ...string) *exec.Cmd {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return exec.CommandContext(ctx, ssh[0], append(slices.Clone(ssh[1:]), strings.Join(quoted, " "))...)
}

// forward returns the arguments that also make sense in the node: go test adds some that
// name its own files.
func forward(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		return slices.Contains([]string{"test.testlogfile", "test.outputdir", "test.gocoverdir", "test.paniconexit0"}, name)
	})
}
