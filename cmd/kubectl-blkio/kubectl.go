package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// kubectl is how the program talks to the API server.
type kubectl struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	context, file  string // --context and --kubeconfig; "" for those of kubectl
}

// answerTime bounds a request.
const answerTime = 30 * time.Second

// run runs kubectl. Its messages come from the API server or from a node, so nothing of them acts on the terminal. isStatus is true if
// the exit status in the error is that of the command in a pod.
func (k *kubectl) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) (isStatus bool, _ error) {
	if k.file != "" {
		args = append([]string{"--kubeconfig=" + k.file}, args...)
	}
	if k.context != "" {
		args = append([]string{"--context=" + k.context}, args...)
	}
	cmd, messages := exec.CommandContext(ctx, "kubectl", args...), &messages{to: terminal.NewCleaner(k.stderr)}
	cmd.WaitDelay = time.Second // for children that keep a pipe open
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, messages
	err := cmd.Run()
	return messages.isStatus, errors.Join(err, messages.Close())
}

// get returns what kubectl get writes.
func (k *kubectl) get(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerTime) // a plugin for authentication may ask its user
	defer cancel()
	var out bytes.Buffer
	_, err := k.run(ctx, nil, &out, append([]string{"get", "--request-timeout=" + answerTime.String()}, args...)...)
	if _, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return nil, &exitError{status: exitUndetermined} // kubectl has said why
	}
	if err != nil {
		return nil, fmt.Errorf("kubectl get: %w", cmp.Or(ctx.Err(), err))
	}
	return out.Bytes(), nil
}

// exec runs a command in a pod. The error has the exit status of the command.
func (k *kubectl) exec(ctx context.Context, namespace, pod string, stdin io.Reader, command ...string) error {
	args := []string{"exec", "--namespace=" + namespace, pod}
	if stdin != nil {
		args = append(args, "--stdin")
	}
	out := terminal.NewCleaner(k.stdout)
	isStatus, err := k.run(ctx, stdin, out, append(append(args, "--"), command...)...)
	err = errors.Join(err, out.Close())
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case !ok:
		return err
	case isStatus:
		return &exitError{status: failed.ExitCode()}
	}
	return &exitError{status: exitUndetermined} // kubectl has said why
}

// messages passes on what kubectl writes to stderr, but for the line by which it says that the exit status is that of the command.
type messages struct {
	to       *terminal.Cleaner
	line     []byte // not complete yet
	isStatus bool
}

var exitLine = regexp.MustCompile(`^command terminated with exit code \d+\r?\n$`)

// Write implements io.Writer.
func (m *messages) Write(p []byte) (int, error) {
	m.line = append(m.line, p...)
	for {
		i := bytes.IndexByte(m.line, '\n') + 1
		if i == 0 && len(m.line) < 1<<16 {
			return len(p), nil
		}
		if i == 0 {
			i = len(m.line)
		}
		line := m.line[:i]
		m.line = m.line[i:]
		if exitLine.Match(line) {
			m.isStatus = true
		} else if _, err := m.to.Write(line); err != nil {
			return 0, err
		}
	}
}

// Close passes on the rest.
func (m *messages) Close() error {
	_, err := m.to.Write(m.line)
	return errors.Join(err, m.to.Close())
}

// name matches the names of namespaces, pods and nodes (RFC 1123). None begins with "-", so kubectl takes none for a flag.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// checkNames returns an error for a name that the API server cannot have. "" is none.
func checkNames(names map[string]string) error {
	for what, text := range names {
		if text != "" && !name.MatchString(text) {
			return usage("%s: invalid name %q", what, strings.ToValidUTF8(text, "?"))
		}
	}
	return nil
}
