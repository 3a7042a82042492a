package node_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy"
)

// agrees verifies that check reports for the manifest of a pod the same as the plugin does with its containers, of which it has to
// reject some. The pod takes the place of the last one of its name. Each container has all volumes.
func (w *world) agrees(_ bool, args []string) {
	if w.pods["prod/agree"] != nil {
		w.removePod(w.mustPod("agree"))
	}
	p := w.newPod("agree", args[1:])
	volumes := []manifest.Volume{
		{Name: "data", Source: manifest.HostPath, Path: "/mnt/data/db"},
		{Name: "logs", Source: manifest.HostPath, Path: "/mnt/data/logs"},
		{Name: "mem", Source: manifest.HostPath, Path: "/mnt/mem"},
		{Name: "scratch", Source: manifest.EmptyDir},
		{Name: "config", Source: "configMap"},
		{Name: "part", Source: manifest.HostPath, Path: "/srv"},
	}
	live := p.live()
	live.Volumes = []policy.Volume{}
	for _, v := range volumes {
		if of := (policy.Volume{Name: v.Name}); v.Source == manifest.HostPath {
			for _, name := range agreeing {
				of.Places = append(of.Places, policy.Place{Container: name, Path: "/" + v.Name})
			}
			live.Volumes = append(live.Volumes, of)
		}
	}
	p.tell()
	described := manifest.Pod{Volumes: volumes}
	described.Namespace, described.Annotations, described.Labels, described.QOS = p.namespace, p.annotations, p.labels, policy.Guaranteed
	did, refused := map[string][]string{}, map[string]string{}
	for name, role := range map[string]manifest.Role{"init": manifest.Init, "proxy": manifest.Sidecar, "a": manifest.Main, "b": manifest.Main} {
		c := manifest.Container{Name: name, Role: role}
		for _, v := range volumes {
			c.Mounts = append(c.Mounts, manifest.Mount{Volume: v.Name, Path: "/" + v.Name, SubPath: map[string]string{"part": "a"}[v.Name]})
		}
		described.Containers = append(described.Containers, c)
	}
	slices.SortFunc(described.Containers, func(a, b manifest.Container) int { // as the kubelet starts them
		return slices.Index(agreeing, a.Name) - slices.Index(agreeing, b.Name)
	})
	for _, of := range described.Containers {
		c := w.newContainer([]string{"agree", of.Name})
		c.mounts = p.mountsOf(volumes, c.name)
		if err := w.create(c); err != nil {
			refused[c.name] = err.Error()
			continue
		}
		for file, text := range c.unified {
			for line := range strings.Lines(text) {
				did[c.name] = append(did[c.name], file+" "+strings.TrimSpace(line))
			}
		}
		w.ts.Check(w.start(c))
		if synctest.Wait(); of.Role == manifest.Init {
			w.exit(c)
		}
	}
	synctest.Wait()
	did[""] = w.podLines(p)
	w.compare(&described, did, refused)
	w.same("rejected", strings.Join(slices.Sorted(maps.Keys(refused)), ","), strings.TrimPrefix(args[0], "none"))
}

var agreeing = []string{"init", "proxy", "a", "b"}

// mountsOf returns the mounts of a container as the kubelet and the runtime make them.
func (p *pod) mountsOf(volumes []manifest.Volume, container string) []inventory.Mount {
	dir := node.DefaultKubeletRoot + "/pods/" + p.uid
	out := []inventory.Mount{{Type: "bind", Source: dir + "/etc-hosts", Destination: "/etc/hosts", Options: inventory.ParseOptions("rbind", "rw")}}
	for i, v := range volumes {
		m := inventory.Mount{Type: "bind", Source: v.Path, Destination: "/" + v.Name, Options: inventory.ParseOptions("rbind", "rw")}
		switch v.Name {
		case "scratch":
			m.Source = dir + "/volumes/kubernetes.io~empty-dir/" + v.Name
		case "config":
			m.Source, m.Options = dir+"/volumes/kubernetes.io~configmap/"+v.Name, inventory.ParseOptions("rbind", "ro")
		case "part":
			m.Source = fmt.Sprintf("%s/volume-subpaths/part/%s/%d", dir, container, i)
		}
		out = append(out, m)
	}
	return out
}

// podLines returns what is in the files of the cgroup of a pod.
func (w *world) podLines(p *pod) (out []string) {
	for dev, limits := range w.kernel.Limits(p.cgroup) {
		out = append(out, blkio.IOMax+" "+blkio.DevLimits{Dev: dev, Limits: limits}.String())
	}
	if weight, err := w.kernel.Read(p.cgroup, blkio.IOWeight); err == nil && weight != "default 100" {
		out = append(out, blkio.IOWeight+" "+strings.TrimPrefix(weight, "default "))
	}
	return out
}

// compare compares the report of check with what the plugin has done: the lines by container, "" for the pod, and the rejections.
func (w *world) compare(of *manifest.Pod, did map[string][]string, refused map[string]string) {
	checker := check.Checker{Policy: w.policy, Node: check.Node{
		Storage: fakenode.MountTable{Disks: w.disks}, KubeletRoot: node.DefaultKubeletRoot, Layers: w.layers,
	}}
	said := checker.Pod(context.Background(), of)
	lines := map[string][]string{}
	for _, write := range said.Writes {
		lines[write.Container] = append(lines[write.Container], write.File+" "+write.Line)
	}
	for _, name := range append(agreeing, "") {
		slices.Sort(lines[name])
		slices.Sort(did[name])
		w.same("check of "+name, strings.Join(lines[name], "\n"), strings.Join(did[name], "\n"))
	}
	for name, text := range refused {
		if !slices.Contains(said.Errors, text) || !slices.Contains(said.Effects, "container "+name+" is not created") {
			w.ts.Fatalf("check does not report that %s is rejected for %q: %q, %q", name, text, said.Errors, said.Effects)
		}
	}
	if len(refused) != strings.Count(strings.Join(said.Effects, "\n"), "is not created") {
		w.ts.Fatalf("check rejects others: %q", said.Effects)
	}
}
