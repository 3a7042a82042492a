package check

import (
	"context"
	"errors"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Decided has the decisions about a pod as values.
type Decided struct {
	Mode               policy.Mode
	IgnoresAnnotations bool
	Containers         []Decision // all containers, in the order of the pod
	Total              Decision   // for the pod's own cgroup, with the backstop
	Unknown            []string   // errors about containers that annotations name and the pod does not have
}

// Decision is the decision about one cgroup.
type Decision struct {
	Container string // "" for the pod's own cgroup
	Class     string // the name of the class that applies, or ""
	Refused   string // the error that the policy rejects the container for, in mode enforce; "" for none
	Settings  policy.Settings
	Disks     map[blkio.Dev]string // names of the disks in Settings
}

// undecided returns the decisions about a pod that gets no settings.
func undecided(pol *policy.Pod, m *manifest.Pod) Decided {
	out := Decided{Mode: pol.Mode(), IgnoresAnnotations: pol.IgnoresAnnotations()}
	for i := range m.Containers {
		name := m.Containers[i].Name
		out.Containers = append(out.Containers, Decision{Container: name, Class: pol.Class(name)})
	}
	return out
}

// Select returns the names of the disks that an entry selects in a container, or in all containers of the pod
// if container is "". kind is the kind of the entry's annotation, "limits" or "weight". The error is the reason
// why the node cannot give the entry an effect.
func (c *Checker) Select(ctx context.Context, m *manifest.Pod, container, kind, entry string) ([]string, error) {
	scope := "pod-total"
	if container != "" {
		scope = "container." + container
	}
	pol := policy.Default().ForPod(nil, annotation.Parse(map[string]string{kind + "." + annotation.Domain + "/" + scope: entry}))
	containers, err := c.Node.find(ctx, c.handlerOf(m), m, pol.Targets())
	if err != nil {
		return nil, err
	}
	var d policy.Desired
	if i := slices.IndexFunc(containers, func(c policy.Container) bool { return c.Name == container }); container != "" && i >= 0 {
		d, err = pol.Container(containers[i])
	} else {
		d, err = pol.Total(containers)
	}
	if e, ok := errors.AsType[*annotation.Error](err); ok {
		return nil, errors.New(e.Cause)
	}
	if kind == "weight" { // that on all disks has no disks among the settings
		return blkio.DiskNames(d.Weighted), err
	}
	var names []string
	for _, s := range d.Settings {
		if s.Key.HasDev() {
			names = append(names, d.Disks[s.Dev])
		}
	}
	return names, err
}
