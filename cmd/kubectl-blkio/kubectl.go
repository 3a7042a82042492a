package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// kubectl is how the program asks the API server.
type kubectl struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	context, file  string // --context and --kubeconfig; "" for those of kubectl
}

// run runs kubectl. Its messages come from the API server or from a node, so nothing of them acts on the terminal. After a failure they
// say why, and the error has the exit status.
func (k *kubectl) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	if k.context != "" {
		args = append([]string{"--context=" + k.context}, args...)
	}
	if k.file != "" {
		args = append([]string{"--kubeconfig=" + k.file}, args...)
	}
	cmd, messages := exec.CommandContext(ctx, "kubectl", args...), &terminal.Lines{To: k.stderr}
	cmd.WaitDelay = time.Second // for children that keep a pipe open
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, messages
	err := errors.Join(cmd.Run(), messages.Close())
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() > 0 {
		return &exitError{failed.ExitCode(), nil}
	}
	return err
}

func (k *kubectl) get(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a plugin for authentication may ask its user
	defer cancel()
	var out bytes.Buffer
	err := k.run(ctx, nil, &out, append([]string{"get", "--request-timeout=30s"}, args...)...)
	if failed, ok := errors.AsType[*exitError](err); ok {
		failed.status = exitUndetermined
	}
	return out.Bytes(), err
}

func (k *kubectl) exec(ctx context.Context, namespace, pod string, stdin io.Reader, command ...string) error {
	args := []string{"exec", "--namespace=" + namespace, pod}
	if stdin != nil {
		args = append(args, "--stdin")
	}
	out := &terminal.Lines{To: k.stdout}
	err := k.run(ctx, stdin, out, append(append(args, "--"), command...)...)
	return errors.Join(err, out.Close())
}
