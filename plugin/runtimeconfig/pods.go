package runtimeconfig

import (
	"context"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// Pod is a pod that the runtime has a sandbox of.
type Pod struct {
	Namespace, Name, UID string
	Containers           map[string]string // names by ID, without the sandbox
}

// Pods asks the runtime for its pods and their containers. With NoEndpoint it returns an error.
func (c *Config) Pods(ctx context.Context) ([]Pod, error) {
	if c.Endpoint == NoEndpoint {
		return nil, ErrNoSocket
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	var out []Pod
	err := c.eachSocket(append(containerdSockets(), crioSocket), func(socket string) error {
		conn, err := dial(c.host(), socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		out, err = listPods(ctx, cri.NewRuntimeServiceClient(conn))
		return err
	})
	return out, err
}

func listPods(ctx context.Context, runtime cri.RuntimeServiceClient) ([]Pod, error) {
	sandboxes, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, callError("CRI ListPodSandbox", err)
	}
	containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, callError("CRI ListContainers", err)
	}
	bySandbox := map[string]map[string]string{}
	for _, c := range containers.GetContainers() {
		names := bySandbox[c.GetPodSandboxId()]
		if names == nil {
			names = map[string]string{}
			bySandbox[c.GetPodSandboxId()] = names
		}
		names[c.GetId()] = c.GetMetadata().GetName()
	}
	var out []Pod
	for _, s := range sandboxes.GetItems() {
		m := s.GetMetadata()
		out = append(out, Pod{m.GetNamespace(), m.GetName(), m.GetUid(), bySandbox[s.GetId()]})
	}
	return out, nil
}

// dial connects to a socket of the node. The socket's mode has to let us write; that its filesystem is mounted read-only does
// not matter (sb_permission in fs/namei.c).
func dial(host hostfs.Root, socket string) (*grpc.ClientConn, error) {
	file, err := host.Resolve(socket)
	if err != nil {
		return nil, err
	}
	connect := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", file)
	}
	return grpc.NewClient("passthrough:///runtime", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(connect))
}

// containerdSockets returns the known places of containerd's socket.
func containerdSockets() (out []string) {
	for _, l := range locations() {
		if !slices.Contains(out, l.socket) {
			out = append(out, l.socket)
		}
	}
	return out
}
