package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

const (
	sharedDir  = "/mnt/demo-shared" // where the shared disk is mounted
	policyFile = "/run/demo-policy.yaml"
	enabling   = time.Minute     // for io.cost, at most
	removing   = 2 * time.Minute // for the kubelet's pods, at most
)

// situation is a victim with or without a noisy neighbour on the shared disk.
type situation struct {
	name              string
	noisy             bool
	victim, neighbour map[string]string // annotations
}

// The situations that checkNeighbour compares.
const (
	withNothing = 1
	withWeights = 3
)

func situations() []situation {
	const limits, weight = "limits.blkio.noderesource.dev/containers", "weight.blkio.noderesource.dev/containers"
	return []situation{
		{name: "no neighbour"},
		{name: "no settings", noisy: true},
		{name: "limit " + noise.Limit, noisy: true, neighbour: map[string]string{limits: "/data " + noise.Limit}},
		{name: "weights 1000 : 10", noisy: true, victim: map[string]string{weight: "1000"}, neighbour: map[string]string{weight: "10"}},
	}
}

// outcome has the figures that were measured in a situation.
type outcome struct {
	name       string
	victim     noise.Result
	throughput float64 // MiB per second that the neighbour writes and reads
}

// beside measures all situations, one after another. The kubelet is stopped: it would remove
// pods that it does not know, and takes CPU that an emulated node does not have.
func beside(ctx context.Context, client *cri.Client) ([]outcome, error) {
	if err := command(ctx, "systemctl", "stop", "kubelet"); err != nil {
		return nil, err
	}
	removeCtx, cancel := context.WithTimeout(ctx, removing)
	defer cancel()
	if err := client.RemovePods(removeCtx); err != nil {
		return nil, err
	}
	number, err := cgroup.Disk(noise.SharedDisk)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(sharedDir, 0o755); err != nil {
		return nil, err
	}
	if err := command(ctx, "mount", "/dev/"+noise.SharedDisk, sharedDir); err != nil {
		return nil, err
	}
	var out []outcome
	for i, s := range situations() {
		h, err := s.play(ctx, client, noise.Disk{Dir: sharedDir, Number: number}, i)
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

// play runs both pods, and measures.
func (s situation) play(ctx context.Context, client *cri.Client, disk noise.Disk, number int) (h outcome, err error) {
	victim, removeVictim, err := holder(ctx, client, fmt.Sprint("victim", number), s.victim)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, removeVictim(ctx)) }()
	h.name = s.name
	if !s.noisy {
		h.victim, err = disk.Victim(ctx, victim.Cgroup, noise.Reads()...)
		return h, err
	}
	neighbour, removeNeighbour, err := holder(ctx, client, fmt.Sprint("noisy", number), s.neighbour)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, removeNeighbour(ctx)) }()
	if s.victim != nil {
		if err := awaitCost(ctx, disk); err != nil {
			return outcome{}, err
		}
	}
	stop, err := disk.Neighbour(neighbour.Cgroup)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	time.Sleep(noise.Settle)
	rates, err := disk.While(neighbour.Cgroup, func() (err error) {
		h.victim, err = disk.Victim(ctx, victim.Cgroup, noise.Reads()...)
		return err
	})
	h.throughput = rates.Wrote + rates.Read
	return h, err
}

// holder runs a pod with a container that has the shared disk, and does nothing itself.
func holder(ctx context.Context, client *cri.Client, name string, annotations map[string]string) (*cri.Container, func(context.Context) error, error) {
	pod, err := client.RunPod(ctx, cri.PodConfig{Name: name, QoS: cri.Burstable, Annotations: annotations})
	if err != nil {
		return nil, nil, err
	}
	// Without a limit of memory, the neighbour's dirty pages slow down all writers of the node.
	k, err := pod.Run(ctx, cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Memory: 96 * noise.MiB, Mounts: []cri.Mount{{Host: sharedDir, Path: "/data"}}})
	if err != nil {
		return nil, nil, errors.Join(err, pod.Remove(ctx))
	}
	return k, pod.Remove, nil
}

// awaitCost waits until the plugin has enabled io.cost on the disk.
func awaitCost(ctx context.Context, disk noise.Disk) error {
	ctx, cancel := context.WithTimeoutCause(ctx, enabling, fmt.Errorf("io.cost is not enabled after %v", enabling))
	defer cancel()
	for {
		line, err := disk.CostLine("io.cost.qos")
		if err != nil || strings.HasPrefix(line, "enable=1") {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
