package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// calibrate returns kubectl blkio calibrate, with a pod of the plugin on a node in a namespace. No kubelet runs the pod that it creates.
func (p *part) calibrate(ctx context.Context, namespace string) (*exec.Cmd, *bytes.Buffer) {
	p.Helper()
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: plugin, labels: {app.kubernetes.io/name: nri-blkio}}, spec: {nodeName: %s, containers: [{name: nri-blkio, image: x}]}}`
	p.kubectl(fmt.Sprintf(pod, p.node), "apply", "-n", namespace, "-f", "-")
	p.kubectl("", "patch", "pod", "plugin", "-n", namespace, "--subresource=status", "--type=merge", "-p", `{"status": {"phase": "Running"}}`)
	file, err := plugin()
	if err != nil {
		p.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, file, "calibrate", "vdb", "--yes", "--node="+p.node, "--kubeconfig="+server.kubeconfig, "--plugin-namespace="+namespace)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(server.kubectl)+":"+os.Getenv("PATH"))
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// TestCalibrate verifies that a real API server takes the pod of kubectl blkio calibrate where the plugin can be, that an interrupt deletes
// it, and that where Pod Security forbids it, the error tells what to do.
func TestCalibrate(t *testing.T) {
	p := newPart(t, "worker-10")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cmd, out := p.calibrate(ctx, partNamespace)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pods := func() string {
		text, _ := kubectl("", "get", "pods", "-n", partNamespace, "-l", "app.kubernetes.io/name=nri-blkio-calibrate", "-o", "jsonpath={.items[*].spec.nodeName}/{.items[*].metadata.deletionTimestamp}")
		return text
	}
	p.eventually("a pod on the node", func() error {
		if got := pods(); got != "worker-10/" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	interrupt()
	_ = cmd.Wait() // killed, or with the status of the interrupt
	if got := pods(); got != "/" && !strings.HasPrefix(got, "worker-10/2") || !strings.Contains(out.String(), "kubectl blkio: interrupted") {
		t.Errorf("after an interrupt: pods %q: %s", got, out)
	}
	p.kubectl(`{apiVersion: v1, kind: Namespace, metadata: {name: baseline, labels: {pod-security.kubernetes.io/enforce: baseline}}}`, "apply", "-f", "-")
	cmd, out = p.calibrate(t.Context(), "baseline")
	if err := cmd.Run(); err == nil || !strings.Contains(out.String(), `violates PodSecurity "baseline`) || !strings.Contains(out.String(), "(without them, run nri-blkio calibrate on the node itself)") {
		t.Errorf("with Pod Security: %v: %s", err, out)
	}
}
