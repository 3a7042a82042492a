package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
)

// Registered asks a runtime that registers the plugin where it stores writable layers, and waits at most
// patience for the answer. A late answer is still used for the containers that are created after it.
func (n *Node) Registered(ctx context.Context, runtime, version string, patience time.Duration) {
	err := n.inFlight.calls.For(ctx, "", patience, func(ctx context.Context) error {
		n.layers.AskAtRegistration(ctx, runtime, version)
		return nil
	})
	if err != nil {
		n.log.WithError(fmt.Errorf("locate writable layers: %w", err)).Error("Locating writable layers failed: rootfs uses the previous location")
	}
}

// compareLayer compares the location of the layers of a container that starts with the root mount of its process.
func (n *Node) compareLayer(ctx context.Context, c *snapshot) {
	handler := c.pod.request.now.Load().Handler
	if c.pid <= 0 || !slices.Contains(n.policy.Load().HostKernelHandlers, handler) {
		return
	}
	if err := n.layers.Compare(ctx, n.finder().inventory(), handler, c.pid, c.cgroup); err != nil {
		c.logger(n.log).WithError(err).Warn("Comparing the location of writable layers failed")
	}
}

// layersMoved has the containers resolved again whose layers are elsewhere than before.
func (n *Node) layersMoved(now *layers.Locations) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, pod := range s.pods {
		for _, c := range pod.containers {
			if c.hasMoved(now) {
				s.markDirty(pod.group.in(s))
			}
		}
	}
}

// hasMoved reports whether the writable layer of a container is known to be elsewhere than when the container was resolved.
func (c *snapshot) hasMoved(now *layers.Locations) bool {
	return now.HasMoved(c.layer, c.pod.request.now.Load().Handler)
}
