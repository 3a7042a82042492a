package plugin

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// create decides a new container's limits and returns what goes into its OCI
// spec. It writes nothing: there is no cgroup yet (FACTS 4.1). An error fails
// the creation, with the text the tenant sees.
func (p *Plugin) create(ctx context.Context, sb *api.PodSandbox, ctr *api.Container, splitsLines bool) (*api.ContainerAdjustment, error) {
	pod := p.lookup(sb)
	if pod == nil {
		return nil, nil
	}
	pol := p.policy.Load()
	log := p.logger(pod, ctr)
	c, err := p.newContainer(ctx, pod, ctr)
	if err != nil {
		return nil, err
	}
	if err := p.judge(pol, pod, c, log); err != nil {
		return nil, err
	}
	p.register(pod, c)
	if pol.Mode == policy.ModeObserve {
		log.WithField("limits", describe(c.desired)).Info("Observed, nothing is limited")
		return nil, nil
	}
	return adjustment(c.desired, splitsLines), nil
}

// newContainer looks at a container's mounts. It does not become part of the
// pod: a refused one must leave nothing behind.
func (p *Plugin) newContainer(ctx context.Context, pod *pod, ctr *api.Container) (*container, error) {
	if err := p.storage.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	cgroup, err := blkio.ContainerCgroup(ctr.GetLinux().GetCgroupsPath(), pod.cgroup)
	if err != nil {
		return nil, err
	}
	return &container{id: ctr.GetId(), name: ctr.GetName(), cgroup: cgroup, facts: p.facts(ctx, ctr)}, nil
}

// judge decides c's limits and whether what cannot be granted is a refusal.
func (p *Plugin) judge(pol *policy.Policy, pod *pod, c *container, log logrus.FieldLogger) error {
	p.decide(pol, pod, c)
	if c.err == nil {
		c.err = p.judgeTotal(pol, pod, c)
	}
	err := c.err
	if err == nil {
		return nil
	}
	if pol.Mode == policy.ModeObserve || pol.Action(err) == policy.Ignore {
		log.WithError(err).Warn("Not everything that was asked for is enforced")
		return nil
	}
	log.WithError(err).Info("Refused a container")
	return err
}

// judgeTotal checks the pod total with c as one more of the pod's containers.
func (p *Plugin) judgeTotal(pol *policy.Policy, pod *pod, c *container) error {
	p.mu.Lock()
	seen := append(pod.seen(), c.facts)
	p.mu.Unlock()
	total, err := pol.PodTotal(pod.request, seen)
	if err == nil && pod.cgroup == "" && len(total.Disks) > 0 {
		return &policy.Error{
			Annotation: "limits.blkio.noderesource.dev/pod-total",
			Cause:      "the runtime named no cgroup for the pod",
			Hint:       "limit its containers instead",
			Kind:       policy.Unenforceable,
		}
	}
	return err
}

// start completes what the spec could not carry. The container's cgroup
// exists and its first user instruction has not run.
func (p *Plugin) start(ctx context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	pod := p.lookup(sb)
	if pod == nil {
		return nil
	}
	c := p.find(pod, ctr.GetId())
	if c == nil {
		// Created while no plugin listened, or our answer came too late.
		fresh, err := p.newContainer(ctx, pod, ctr)
		if err != nil {
			return err
		}
		if err := p.judge(p.policy.Load(), pod, fresh, p.logger(pod, ctr)); err != nil {
			return err
		}
		p.register(pod, fresh)
		c = fresh
	}
	p.setRunning(pod, c, true)
	if err := p.apply(ctx, pod, c); err != nil {
		return fmt.Errorf("limit container %s: %w", c.name, err)
	}
	return nil
}

// lookup returns the pod of a sandbox, nil where it asks nothing of us.
func (p *Plugin) lookup(sb *api.PodSandbox) *pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod, ok := p.pods[sb.GetId()]; ok {
		return pod
	}
	pod, err := newPod(sb)
	if pod.request.Empty() {
		return nil
	}
	if err != nil {
		p.log.WithError(err).WithField("pod", pod.namespace+"/"+pod.name).Error("No pod totals and backstops for this pod")
	}
	p.pods[pod.id] = pod
	return pod
}

func (p *Plugin) find(pod *pod, id string) *container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pod.containers[id]
}

func (p *Plugin) register(pod *pod, c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod.containers[c.id] = c
	pod.plan = nil
}

func (p *Plugin) setRunning(pod *pod, c *container, running bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.running = running
	pod.plan = nil
}

// stopped takes a container out of the pod's sums; the reconciler lowers the
// backstop. It may come for a container that was refused.
func (p *Plugin) stopped(sandbox, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.pods[sandbox]; pod != nil && pod.containers[id] != nil {
		pod.containers[id].running = false
		p.markDirty(sandbox)
	}
}

func (p *Plugin) removed(sandbox, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.pods[sandbox]; pod != nil && pod.containers[id] != nil {
		delete(pod.containers, id)
		p.markDirty(sandbox)
	}
}

func (p *Plugin) removedPod(sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, sandbox)
	delete(p.dirty, sandbox)
}

func (p *Plugin) updated(sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[sandbox] != nil {
		p.markDirty(sandbox)
	}
}

// synchronize replaces the state with what the runtime says is there, and
// has the reconciler bring all of it into line.
func (p *Plugin) synchronize(ctx context.Context, sandboxes []*api.PodSandbox, ctrs []*api.Container) error {
	p.mu.Lock()
	p.syncs++
	round := p.syncs
	p.mu.Unlock()

	if err := p.storage.Refresh(ctx); err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	pods := map[string]*pod{}
	for _, sb := range sandboxes {
		pod, err := newPod(sb)
		if pod.request.Empty() {
			continue
		}
		if err != nil {
			p.log.WithError(err).WithField("pod", pod.namespace+"/"+pod.name).Error("No pod totals and backstops for this pod")
		}
		pods[pod.id] = pod
	}
	for _, ctr := range ctrs {
		if pod := pods[ctr.GetPodSandboxId()]; pod != nil {
			p.adopt(ctx, pod, ctr)
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if round != p.syncs {
		return nil // a newer listing is being taken over
	}
	p.pods, p.dirty = pods, map[string]bool{}
	for id := range pods {
		p.markDirty(id)
	}
	p.log.WithFields(logrus.Fields{"pods": len(sandboxes), "limited": len(pods)}).Info("Synchronized with the runtime")
	return nil
}

// adopt takes over a container that was there before us. It cannot be refused
// any more, so what it cannot get is logged and recorded.
func (p *Plugin) adopt(ctx context.Context, pod *pod, ctr *api.Container) {
	state := ctr.GetState()
	if state == api.ContainerState_CONTAINER_STOPPED {
		return
	}
	log := p.logger(pod, ctr)
	c, err := p.newContainer(ctx, pod, ctr)
	if err != nil {
		log.WithError(err).Error("A running container is not limited")
		return
	}
	if p.decide(p.policy.Load(), pod, c); c.err != nil {
		log.WithError(c.err).Warn("Not everything that a running container asks for is enforced")
	}
	c.running = state != api.ContainerState_CONTAINER_CREATED
	pod.containers[c.id] = c
}

func (p *Plugin) logger(pod *pod, ctr *api.Container) logrus.FieldLogger {
	return p.log.WithFields(logrus.Fields{
		"pod":       pod.namespace + "/" + pod.name,
		"container": ctr.GetName(),
	})
}

// adjustment is the part of the desired limits that the spec can carry. Where
// the runtime may write the value in one go, that is one disk: the kernel
// takes one device per write, and runc 1.1 does not split lines (FACTS 3.1).
// start writes the other disks.
func adjustment(d policy.Desired, splitsLines bool) *api.ContainerAdjustment {
	var lines string
	for _, disk := range d.Disks {
		limits := finite(disk.Limits)
		if limits.IsZero() {
			continue
		}
		if lines != "" {
			if !splitsLines {
				break
			}
			lines += "\n"
		}
		lines += blkio.DevLimits{Dev: disk.Disk.Dev, Limits: limits}.String()
	}
	if lines == "" && d.Weight == 0 {
		return nil
	}
	adjust := &api.ContainerAdjustment{}
	if lines != "" {
		adjust.AddLinuxUnified("io.max", lines)
	}
	if d.Weight != 0 {
		adjust.AddLinuxUnified("io.weight", fmt.Sprint(d.Weight))
	}
	return adjust
}

// finite leaves out what a fresh cgroup has anyway.
func finite(l blkio.Limits) blkio.Limits {
	for k, rate := range l {
		if rate == blkio.Max {
			l[k] = blkio.Unset
		}
	}
	return l
}

// describe renders desired limits for a log field.
func describe(d policy.Desired) []string {
	var out []string
	for _, disk := range d.Disks {
		out = append(out, disk.Disk.Name+" "+disk.Limits.String())
	}
	if d.Weight != 0 {
		out = append(out, fmt.Sprintf("io.weight %d", d.Weight))
	}
	return out
}
