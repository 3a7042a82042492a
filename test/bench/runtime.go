package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	nri "github.com/containerd/nri/pkg/adaptation"
)

const (
	nriSocket = "/run/bench/nri.sock"
	resync    = 10 * time.Second
	churn     = 300 // creates
)

// fakeRuntime is the runtime's side of NRI, with pods whose containers only sleep.
type fakeRuntime struct {
	*nri.Adaptation
	pods []*pod
}

func newRuntime() (*fakeRuntime, error) {
	r := &fakeRuntime{}
	// A shared mount would hand each of the 5,000 on to its peers.
	if err := errors.Join(mount(base, base), syscall.Mount("", base, "", syscall.MS_PRIVATE, "")); err != nil {
		return nil, err
	}
	for i := range pods {
		p, err := newPod(i)
		if err != nil {
			return nil, err
		}
		r.pods = append(r.pods, p)
	}
	// An emulated node's times are to be seen, not its timeouts.
	nri.SetPluginRequestTimeout(time.Minute)
	nri.SetPluginRegistrationTimeout(time.Minute)
	var err error
	r.Adaptation, err = nri.New("containerd", "2.4.2", r.sync, noUpdates,
		nri.WithSocketPath(nriSocket), nri.WithPluginPath("/run/bench/none"), nri.WithPluginConfigPath("/run/bench/none"))
	if err != nil {
		return nil, err
	}
	return r, r.Start()
}

// sync sends the running pods and containers to a new plugin.
func (r *fakeRuntime) sync(ctx context.Context, tell nri.SyncCB) error {
	var sandboxes []*nri.PodSandbox
	var containers []*nri.Container
	for _, p := range r.pods {
		sandboxes = append(sandboxes, p.sandbox)
		containers = append(containers, p.db, p.sidecar)
	}
	_, err := tell(ctx, sandboxes, containers)
	return err
}

func noUpdates(context.Context, []*nri.ContainerUpdate) ([]*nri.ContainerUpdate, error) {
	return nil, errors.New("this plugin sends no updates of its own")
}

// benchRun measures a process of `nri-blkio run` against the fake runtime.
func benchRun(ctx context.Context, stdout, _ io.Writer) error {
	r, err := newRuntime()
	if err != nil {
		return err
	}
	defer r.Stop()
	p, err := startPlugin(ctx, "--socket", nriSocket, "--resync", resync.String())
	if err != nil {
		return err
	}
	time.Sleep(2*resync + resync/2)
	memory, err := p.memory()
	if err != nil {
		return err
	}
	line(stdout, "NodeRun/settled", 1, memory)
	if err := r.churn(ctx, stdout); err != nil {
		return errors.Join(err, p.failures())
	}
	time.Sleep(resync + resync/2)
	if memory, err = p.memory(); err != nil {
		return err
	}
	line(stdout, "NodeRun/churned", 1, memory)
	return errors.Join(p.failures(), p.stop())
}

// churn replaces containers one by one. Before one in five its pod's volume is
// mounted anew, which changes the mount table.
func (r *fakeRuntime) churn(ctx context.Context, stdout io.Writer) error {
	var same, changed, starts []time.Duration
	for i := range churn {
		p := r.pods[i%pods]
		if err := r.remove(ctx, p); err != nil {
			return fmt.Errorf("remove: %w", err)
		}
		into := &same
		if i%5 == 0 {
			into = &changed
			if err := errors.Join(syscall.Unmount(p.volume(), 0), p.mountVolume()); err != nil {
				return err
			}
		}
		p.db = p.container("db", i+1)
		began := time.Now()
		answer, err := r.CreateContainer(ctx, &nri.CreateContainerRequest{Pod: p.sandbox, Container: p.db})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		*into = append(*into, time.Since(began))
		if answer.GetAdjust().GetLinux().GetResources().GetUnified()["io.max"] == "" {
			return fmt.Errorf("create: no limit in %v", answer)
		}
		if err := p.addCgroup(p.db); err != nil {
			return err
		}
		began = time.Now()
		if err := r.StartContainer(ctx, &nri.StartContainerRequest{Pod: p.sandbox, Container: p.db}); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		starts = append(starts, time.Since(began))
	}
	for name, took := range map[string][]time.Duration{"NodeNRI/same": same, "NodeNRI/changed": changed} {
		line(stdout, name, len(took), map[string]float64{
			"create-p50-µs": micros(percentile(took, 50)), "create-p99-µs": micros(percentile(took, 99)),
		})
	}
	line(stdout, "NodeNRI/start", len(starts), map[string]float64{"start-p50-µs": micros(percentile(starts, 50))})
	return nil
}

// remove ends a container. Its process and its cgroup end before the event, as with a real runtime.
func (r *fakeRuntime) remove(ctx context.Context, p *pod) error {
	if err := p.removeCgroup(p.db); err != nil {
		return err
	}
	_, err := r.StopContainer(ctx, &nri.StopContainerRequest{Pod: p.sandbox, Container: p.db})
	return errors.Join(err, r.RemoveContainer(ctx, &nri.RemoveContainerRequest{Pod: p.sandbox, Container: p.db}))
}
