package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime/pkg/log"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// deadline is the time in which the programs have to start, and each call of kubectl has to end.
const deadline = time.Minute

// server is the API server of all tests of the package.
var server struct {
	kubectl, kubeconfig string
	address             string // HOST:PORT
	ca, cert, key       []byte // of the administrator
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run starts etcd and the API server on loopback, of the version that the node has.
func run(m *testing.M) (code int, err error) {
	ctrl.SetLogger(logr.Discard())
	programs, err := node.Kubernetes(context.Background(), node.Config{Log: os.Stderr})
	if err != nil {
		return 1, err
	}
	env := envtest.Environment{ControlPlaneStartTimeout: deadline, ControlPlaneStopTimeout: deadline}
	// The program is called by the end of its module's path, go.etcd.io/etcd/server.
	env.ControlPlane.Etcd = &envtest.Etcd{Path: filepath.Join(programs, "server")}
	env.ControlPlane.GetAPIServer().Path = filepath.Join(programs, "kube-apiserver")
	env.ControlPlane.GetAPIServer().Configure().Set("allow-privileged", "true")
	env.ControlPlane.KubectlPath = filepath.Join(programs, "kubectl")
	config, err := env.Start()
	if err != nil {
		return 1, errors.Join(err, env.Stop())
	}
	server.address, server.ca = strings.Trim(strings.TrimPrefix(config.Host, "https:"), "/"), config.CAData
	server.cert, server.key = config.CertData, config.KeyData
	defer func() { err = errors.Join(err, env.Stop()) }()
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	server.kubectl, server.kubeconfig = env.ControlPlane.KubectlPath, filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(server.kubeconfig, env.KubeConfig, 0o600); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// cluster sends requests of a test to the API server.
type cluster struct{ *testing.T }

// kubectl fails the test if kubectl does.
func (c cluster) kubectl(input string, args ...string) string {
	c.Helper()
	out, err := kubectl(input, args...)
	if err != nil {
		c.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func kubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, server.kubectl, append([]string{"--kubeconfig", server.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eventually tries a check until it succeeds, or the deadline has passed.
func (c cluster) eventually(what string, check func() error) {
	c.Helper()
	end := time.Now().Add(deadline)
	err := check()
	for err != nil && time.Now().Before(end) {
		time.Sleep(100 * time.Millisecond)
		err = check()
	}
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// deploy is the directory of the files that are installed.
const deploy = "../../deploy"

func readFile(t *testing.T, name ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
