package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inlineSize is the size of a volume that a pod requests in its own spec.
const inlineSize = "100M"

type nodeServer struct {
	csi.UnimplementedNodeServer
	driver *Driver
}

func (nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node"}, nil
}

func (nodeServer) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume makes an inline volume first.
func (n nodeServer) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d := n.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if isMounted(ctx, r.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil // a repeated request
	}
	device := filepath.Join("/dev", d.group, r.VolumeId)
	if r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" && !d.inline[r.VolumeId] {
		if err := run(ctx, "lvcreate", "-q", "-y", "-L", inlineSize, "-n", r.VolumeId, d.group); err != nil {
			return nil, err
		}
		d.inline[r.VolumeId] = true
	}
	publish := mount
	if r.VolumeCapability.GetBlock() != nil {
		publish = bind
	}
	if err := publish(ctx, device, r.TargetPath); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// mount makes a filesystem where there is none.
func mount(ctx context.Context, device, target string) error {
	// It fails if it finds none.
	if run(ctx, "blkid", "-p", device) != nil {
		if err := run(ctx, "mkfs.ext4", "-q", device); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	return run(ctx, "mount", "-t", "ext4", device, target)
}

// bind shows the device itself, as a file.
func bind(ctx context.Context, device, target string) error {
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return err
	}
	return run(ctx, "mount", "--bind", device, target)
}

func (n nodeServer) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	d := n.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if isMounted(ctx, r.TargetPath) {
		if err := run(ctx, "umount", r.TargetPath); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(r.TargetPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if d.inline[r.VolumeId] {
		if err := run(ctx, "lvremove", "-q", "-y", filepath.Join(d.group, r.VolumeId)); err != nil {
			return nil, err
		}
		delete(d.inline, r.VolumeId)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func isMounted(ctx context.Context, path string) bool {
	return exec.CommandContext(ctx, "mountpoint", "-q", path).Run() == nil
}

func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("%v: %v: %s", cmd, err, out))
	}
	return nil
}
