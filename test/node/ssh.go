package node

import (
	"archive/tar"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// dialTimeout bounds one attempt: QEMU accepts a connection before the guest can
// answer it, and an attempt begun too early is never answered.
const dialTimeout = 10 * time.Second

// bootKey is the key that opens one boot's node.
type bootKey struct {
	signer     ssh.Signer
	authorized string // the line for authorized_keys, base64 once more: it has blanks
}

// newBootKey makes a key and writes it to file, for the ssh command.
func newBootKey(file string) (bootKey, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return bootKey{}, fmt.Errorf("make the ssh key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return bootKey{}, fmt.Errorf("make the ssh key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "nri-node")
	if err != nil {
		return bootKey{}, fmt.Errorf("make the ssh key: %w", err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return bootKey{}, fmt.Errorf("make the ssh key: %w", err)
	}
	sshPublic, err := ssh.NewPublicKey(public)
	if err != nil {
		return bootKey{}, fmt.Errorf("make the ssh key: %w", err)
	}
	line := ssh.MarshalAuthorizedKey(sshPublic)
	return bootKey{signer: signer, authorized: base64.StdEncoding.EncodeToString(line)}, nil
}

// clientConfig trusts the one host key that the image was built with: another
// process could have taken the port.
func clientConfig(key bootKey, hostKeyFile string) (*ssh.ClientConfig, error) {
	data, err := os.ReadFile(hostKeyFile)
	if err != nil {
		return nil, err
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", hostKeyFile, err)
	}
	return &ssh.ClientConfig{
		User:              "root",
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(key.signer)},
		HostKeyCallback:   ssh.FixedHostKey(hostKey),
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
	}, nil
}

func dial(ctx context.Context, addr string, config *ssh.ClientConfig) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, addr, config)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), nil
}

// Run runs a command in the node as root and returns its exit status. Its words
// reach the program as they are; for a shell's features run "sh", "-c", SCRIPT.
// The error says that the command could not be run to its end; when ctx ends, the
// command gets SIGTERM.
func (n *Node) Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, cmd ...string) (int, error) {
	session, err := n.client.NewSession()
	if err != nil {
		return -1, n.lost(fmt.Errorf("run %s: %w", cmd[0], err))
	}
	defer session.Close()
	session.Stdin, session.Stdout, session.Stderr = stdin, stdout, stderr
	if err := session.Start(shellQuote(cmd)); err != nil {
		return -1, n.lost(fmt.Errorf("run %s: %w", cmd[0], err))
	}
	done := make(chan error, 1)
	go func() { done <- session.Wait() }()
	select {
	case err = <-done:
	case <-n.qemu.done:
		return -1, n.lost(fmt.Errorf("run %s: the node ended", cmd[0]))
	case <-ctx.Done():
		_ = session.Signal(ssh.SIGTERM) // whether or not it arrives, the session ends
		return -1, fmt.Errorf("run %s: %w", cmd[0], context.Cause(ctx))
	}
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Signal() != "":
		return -1, fmt.Errorf("run %s: killed by SIG%s", cmd[0], exit.Signal())
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	return -1, n.lost(fmt.Errorf("run %s: %w", cmd[0], err))
}

// Output runs a command and returns what it prints; a status other than 0 is an
// error with its standard error.
func (n *Node) Output(ctx context.Context, cmd ...string) (string, error) {
	var stdout, stderr strings.Builder
	code, err := n.Run(ctx, nil, &stdout, &stderr, cmd...)
	if err != nil {
		return stdout.String(), err
	}
	if code != 0 {
		return stdout.String(), fmt.Errorf("run %s: exit status %d: %s",
			strings.Join(cmd, " "), code, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// shellQuote joins words so that the node's shell takes them apart again.
func shellQuote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// Copy copies the contents of a directory into the directory guest, which it makes. Modes are kept, owners become root.
func (n *Node) Copy(ctx context.Context, host, guest string) error {
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		w.CloseWithError(errors.Join(tw.AddFS(os.DirFS(host)), tw.Close()))
	}()
	defer r.Close()
	var stderr strings.Builder
	code, err := n.Run(ctx, r, io.Discard, &stderr, "sh", "-c", `mkdir -p "$1" && tar -xo -C "$1"`, "sh", guest)
	if err != nil {
		return fmt.Errorf("copy %s to the node: %w", host, err)
	}
	if code != 0 {
		return fmt.Errorf("copy %s to the node: %s", host, strings.TrimSpace(stderr.String()))
	}
	return nil
}
