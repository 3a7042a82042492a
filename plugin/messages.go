package plugin

import (
	"cmp"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// sandboxOf converts NRI's message about a sandbox for the node.
func sandboxOf(sb *api.PodSandbox) *node.Sandbox {
	return &node.Sandbox{
		ID: sb.GetId(), UID: sb.GetUid(), Handler: sb.GetRuntimeHandler(), Cgroup: sb.GetLinux().GetCgroupParent(),
		Facts: podfacts.Facts{Namespace: sb.GetNamespace(), Name: sb.GetName(), Labels: sb.GetLabels(), Annotations: sb.GetAnnotations()},
	}
}

// described converts NRI's messages about pods and containers for the node.
func described(pods []*api.PodSandbox, ctrs []*api.Container) ([]*node.Sandbox, []*node.Container) {
	sandboxes, containers := make([]*node.Sandbox, len(pods)), make([]*node.Container, len(ctrs))
	for i, sb := range pods {
		sandboxes[i] = sandboxOf(sb)
	}
	for i, ctr := range ctrs {
		containers[i] = containerOf(ctr)
	}
	return sandboxes, containers
}

// containerOf converts NRI's message about a container for the node.
func containerOf(ctr *api.Container) *node.Container {
	resources := ctr.GetLinux().GetResources()
	return &node.Container{
		ID: ctr.GetId(), Name: ctr.GetName(), Sandbox: ctr.GetPodSandboxId(), Cgroup: ctr.GetLinux().GetCgroupsPath(),
		PID: int(ctr.GetPid()), State: stateOf(ctr.GetState()), CreatedAt: ctr.GetCreatedAt(),
		OCI:  node.OCI{MemoryMax: resources.GetMemory().GetLimit().GetValue(), Unified: resources.GetUnified(), Mark: ctr.GetAnnotations()[markKey]},
		Spec: func() *inventory.Spec { return specOf(ctr) },
	}
}

func stateOf(s api.ContainerState) node.State {
	switch s {
	case api.ContainerState_CONTAINER_RUNNING, api.ContainerState_CONTAINER_PAUSED:
		return node.Running
	case api.ContainerState_CONTAINER_CREATED:
		return node.Created
	}
	return node.Stopped
}

// specOf returns the facts by which the disks of a container are found. The rest of the description is a
// tenant's text, and may be long.
func specOf(ctr *api.Container) *inventory.Spec {
	out := &inventory.Spec{Name: ctr.GetName(), Mounts: make([]inventory.Mount, 0, len(ctr.GetMounts()))}
	for _, m := range ctr.GetMounts() {
		out.Mounts = append(out.Mounts, inventory.Mount{Source: m.GetSource(), Destination: m.GetDestination(), Type: m.GetType(), Options: inventory.ParseOptions(m.GetOptions()...)})
	}
	for _, d := range ctr.GetLinux().GetDevices() {
		if d.GetMajor() >= 0 && d.GetMinor() >= 0 {
			dev := blkio.Dev{Major: uint32(d.GetMajor()), Minor: uint32(d.GetMinor())}
			out.Devices = append(out.Devices, inventory.Device{Path: d.GetPath(), Type: d.GetType(), Dev: dev})
		}
	}
	return out
}

// sandboxID returns the sandbox ID of an event. containerd sends no pod with the events of a container after it
// has removed the sandbox (internal/cri/server/container_stop.go, container_remove.go).
func sandboxID(pod *api.PodSandbox, ctr *api.Container) string {
	return cmp.Or(pod.GetId(), ctr.GetPodSandboxId())
}

// adjustment returns settings in the form of the OCI spec.
func adjustment(s policy.Settings) *api.ContainerAdjustment {
	adjust := &api.ContainerAdjustment{}
	for file, text := range plan.Unified(s) {
		adjust.AddLinuxUnified(file, text)
	}
	return adjust
}
