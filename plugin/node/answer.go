package node

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// ErrInternal is the only text that a tenant sees when the plugin rejects a container because of an internal
// failure (onError.internal: reject). It is the same on each retry and contains nothing about the host.
var ErrInternal = errors.New("nri-blkio: internal error; see the log of nri-blkio on this node")

// Create decides a new container's limits, and returns those that go into its OCI spec. It returns false if it
// could not decide them. An error rejects the container.
func (n *Node) Create(ctx context.Context, sb *Sandbox, ctr *Container, splitsLines bool) (spec policy.Settings, decided bool, err error) {
	spec, err = n.create(ctx, sb, ctr, splitsLines)
	if err != nil {
		return nil, false, n.verdict(err, sb, ctr)
	}
	return spec, true, nil
}

// Start writes the limits that the OCI spec could not carry. An error rejects the container.
func (n *Node) Start(ctx context.Context, sb *Sandbox, ctr *Container, canRefuse bool) error {
	return n.verdict(n.start(ctx, sb, ctr, canRefuse), sb, ctr)
}

// verdict decides by the cause of an error whether it fails the container. An annotation.Error was logged by
// its decision; verdict logs any other error.
func (n *Node) verdict(err error, sb *Sandbox, ctr *Container) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*annotation.Error](err); ok {
		n.metrics.refused[refusal.Kind()].Add(1)
		n.noteRefused(sb, ctr.Name, refusal)
		return refusal
	}
	log := n.log.WithError(err).WithFields(logrus.Fields{"pod": sb.Namespace + "/" + sb.Name, "container": ctr.Name})
	if refusal := n.Refusal(sb); refusal != nil {
		n.noteRefused(sb, ctr.Name, refusal)
		log.Error("Rejected a container because of an internal error")
		return refusal
	}
	log.Error("Container starts without all of its limits, retrying")
	return nil
}

// Refusal returns the error that rejects a container after an internal failure, and counts the rejection. It
// returns nil where the policy lets the containers of the pod start, and for a pod that has neither annotations
// nor a class.
func (n *Node) Refusal(sb *Sandbox) error {
	pol := n.Policy()
	if pol.OnError.Internal != policy.Reject {
		return nil
	}
	r, _ := sb.request(pol)
	if p := n.podOf(sb.ID); p.isNone() {
		r = n.withLive(r, sb.UID, sb.Name)
	} else {
		r = p.request.now.Load()
	}
	concerned := annotation.Concerns(sb.Annotations) || pol.Concerns(&r.PodFacts) || n.concernsLive(sb)
	if !concerned || pol.ForPod(&r.PodFacts, nil).Mode() == policy.ModeObserve {
		return nil
	}
	n.metrics.refused[annotation.Internal].Add(1)
	return ErrInternal
}
