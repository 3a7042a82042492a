package runtimeconfig

import (
	"context"
	"errors"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// Pod is a pod that the runtime has one or more sandboxes of.
type Pod struct {
	Namespace, Name, UID string
	Containers           map[string]string // names by ID, without the sandbox
	Labels               map[string]string // as the pod's sandbox was created
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
	var out []Pod
	byUID, bySandbox := map[string]map[string]string{}, map[string]map[string]string{}
	for _, s := range sandboxes.GetItems() {
		m := s.GetMetadata()
		if byUID[m.GetUid()] == nil {
			byUID[m.GetUid()] = map[string]string{}
			out = append(out, Pod{m.GetNamespace(), m.GetName(), m.GetUid(), byUID[m.GetUid()], s.GetLabels()})
		}
		bySandbox[s.GetId()] = byUID[m.GetUid()] // a sandbox that ended stays for a while beside the one that replaces it
	}
	for _, c := range containers.GetContainers() {
		if names := bySandbox[c.GetPodSandboxId()]; names != nil {
			names[c.GetId()] = c.GetMetadata().GetName()
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the runtime has no pods")
	}
	return out, nil
}

// maxAnswer is how many bytes of an answer of the runtime are read: as many as the kubelet reads. A sandbox has the annotations of its
// pod, up to 256 KiB.
const maxAnswer = 16 << 20

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
	return grpc.NewClient("passthrough:///runtime", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(connect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
}

func containerdSockets() (out []string) {
	for _, l := range locations() {
		if !slices.Contains(out, l.socket) {
			out = append(out, l.socket)
		}
	}
	return out
}
