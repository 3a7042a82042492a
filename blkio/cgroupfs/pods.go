package cgroupfs

import (
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// RunningPods returns the cgroups of the kubelet's pods in which at least two containers have processes, in a fixed order. The
// first container of a pod is its sandbox, so another one has been created there. It does not find pods below a cgroup that is
// neither a slice nor kubepods.
func (h *Hierarchy) RunningPods() (out []Cgroup, _ error) {
	err := h.walk(".", func(c Cgroup, _ int, _ *unix.Stat_t) error {
		if !isPod(c.path) {
			if c.path == "." || strings.HasSuffix(c.path, sliceSuffix) || HoldsPods(c.path) {
				return nil
			}
			return fs.SkipDir
		}
		running, err := c.runsContainers()
		if err != nil {
			return err
		}
		if running {
			out = append(out, c)
		}
		return fs.SkipDir
	})
	return out, err
}

// runsContainers reports whether a pod has processes in at least two child cgroups, without those of CRI-O's monitors.
func (c Cgroup) runsContainers() (bool, error) {
	children, err := c.Children()
	if err != nil {
		return false, err
	}
	count := 0
	for _, child := range children {
		if strings.Contains(path.Base(child.path), "conmon") {
			continue
		}
		switch populated, err := child.Populated(); {
		case err != nil:
			return false, err
		case populated:
			count++
		}
	}
	return count >= 2, nil
}
