package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// The objects of deploy/kubernetes/cluster-rbac.yaml.
const partNamespace, partAccount = "nri-blkio", "nri-blkio-cluster"

// program builds nri-blkio, once, and plugin kubectl-blkio.
var (
	program = sync.OnceValues(func() (string, error) { return build("nri-blkio") })
	plugin  = sync.OnceValues(func() (string, error) { return build("kubectl-blkio") })
)

func build(name string) (string, error) {
	dir, err := os.MkdirTemp("", "nri-blkio-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", file, "./cmd/"+name)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
}

// part is the cluster part of one node, as a process with the rights of deploy/kubernetes.
type part struct {
	cluster
	node  string
	dir   string // the exchange directory
	notes string // the events directory
	token string // the directory with the token
	proxy *proxy
	own   string // the document of the part's own pod
	cmd   *exec.Cmd
	log   logBuffer
}

// logBuffer is the log of a process that still runs.
type logBuffer struct {
	mu   sync.Mutex // guards data
	data bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// newPart makes a node with a pod of the part, whose token the process gets. It does not start it.
func newPart(t *testing.T, node string) *part {
	t.Helper()
	c := cluster{t}
	p := &part{cluster: c, node: node, dir: exchangeDir(t), notes: t.TempDir(), token: t.TempDir(), proxy: newProxy(t)}
	c.kubectl(readFile(t, deploy, "kubernetes/namespace.yaml"), "apply", "-f", "-")
	c.kubectl(readFile(t, deploy, "kubernetes/cluster-rbac.yaml"), "apply", "--validate=strict", "-n", partNamespace, "-f", "-")
	c.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}", node), "apply", "-f", "-")
	pod := "cluster-" + node
	uid := p.pod(partNamespace, pod, "{serviceAccountName: "+partAccount+", containers: [{name: cluster, image: x}]}", "")
	p.own = mailbox.FileName(uid)
	token := c.kubectl("", "create", "token", partAccount, "-n", partNamespace, "--bound-object-kind=Pod", "--bound-object-name="+pod, "--duration=1h")
	for name, data := range map[string]string{"token": token, "ca.crt": string(server.ca)} {
		if err := os.WriteFile(filepath.Join(p.token, name), []byte(strings.TrimSpace(data)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		state, _ := os.ReadFile(filepath.Join(p.dir, "state", "cluster.json"))
		p.stop()
		if t.Failed() {
			t.Logf("state of the part: %s\nits log:\n%s", state, p.log.String())
		}
	})
	return p
}

// exchangeDir returns a directory in memory, as /run is on a node. On a disk, replacing a file waits while that is busy
// with a build.
func exchangeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "nri-blkio-")
	if err != nil {
		t.Logf("the exchange directory is on a disk: %v", err)
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start starts the process, with more arguments.
func (p *part) start(more ...string) {
	p.Helper()
	file, err := program()
	if err != nil {
		p.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(p.proxy.Addr().String())
	args := []string{"run", "--only=cluster", "--node-name=" + p.node, "--exchange-dir=" + p.dir, "--events-dir=" + p.notes, "--token-dir=" + p.token, "--resync=1s"}
	p.cmd = exec.CommandContext(context.Background(), file, append(args, more...)...)
	p.cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
}

// stop ends the process as the kubelet does.
func (p *part) stop() {
	p.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("the part ended: %v", err)
	}
	p.cmd = nil
}

// pod creates a pod on the part's node until the end of the test, and returns its UID.
func (p *part) pod(namespace, name, spec, annotations string) string {
	p.Helper()
	spec = strings.Replace(spec, "{", "{nodeName: "+p.node+", ", 1)
	p.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s, annotations: {%s}}, spec: %s}", namespace, name, annotations, spec), "create", "-f", "-")
	p.Cleanup(func() { p.deletePod(namespace, name) })
	return p.kubectl("", "get", "pod", "-n", namespace, name, "-o", "jsonpath={.metadata.uid}")
}

// deletePod deletes a pod as the kubelet does once its containers have ended.
func (p *part) deletePod(namespace, name string) {
	p.Helper()
	p.kubectl("", "delete", "pod", "-n", namespace, name, "--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
}

// namespace creates a namespace.
func (p *part) namespace(name, labels string) {
	p.Helper()
	p.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, labels), "apply", "-f", "-")
}

// document waits for a document for which is returns "".
func (p *part) document(uid string, is func(*poddoc.Document) string) *poddoc.Document {
	p.Helper()
	var d *poddoc.Document
	p.eventually("document of "+uid, func() (err error) {
		if d, err = poddoc.Format().Read(p.dir, uid); err != nil {
			return err
		}
		if problem := is(d); problem != "" {
			return errors.New(problem)
		}
		return nil
	})
	return d
}

// equals waits for a document, but for the labels of the namespace that Kubernetes sets.
func (p *part) equals(want *poddoc.Document) {
	p.Helper()
	p.document(want.UID, func(d *poddoc.Document) string {
		delete(d.NamespaceLabels, "kubernetes.io/metadata.name")
		return cmp.Diff(want, d)
	})
}

// gone waits until a pod has no document.
func (p *part) gone(uid string) {
	p.Helper()
	p.eventually("removal of the document of "+uid, func() error {
		if d, err := poddoc.Format().Read(p.dir, uid); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%v, %w", d, err)
		}
		return nil
	})
}

// state waits for a state, and returns the reason for it.
func (p *part) state(want string) (reason string) {
	p.Helper()
	p.eventually("state "+want, func() error {
		var report struct{ State, Reason string }
		data, err := os.ReadFile(filepath.Join(p.dir, "state", "cluster.json"))
		if err == nil {
			err = json.Unmarshal(data, &report)
		}
		if err != nil {
			return err
		}
		if reason = report.Reason; report.State != want {
			return fmt.Errorf("%s: %s", report.State, reason)
		}
		return nil
	})
	return reason
}

// times returns when each file of the exchange directory was written, except those of the part and
// its own pod.
func (p *part) times() map[string]int64 {
	p.Helper()
	out := map[string]int64{}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		p.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() && e.Name() != p.own {
			out[e.Name()] = info.ModTime().UnixNano()
		}
	}
	return out
}
