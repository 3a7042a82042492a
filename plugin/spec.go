package plugin

import (
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// inSpec returns the part of the desired settings that the spec can carry. Where
// the runtime may write the value in one go, that is one disk: the kernel
// takes one device per write, and runc 1.1 does not split lines (docs/reference/quirks.md).
// start writes the other disks. What a fresh cgroup has anyway is left out.
func inSpec(s policy.Settings, splitsLines bool) policy.Settings {
	s = s.Where(func(x policy.Setting) bool { return x.IsLimit() })
	if splitsLines || len(s) == 0 {
		return s
	}
	first := s[0].Dev // of io.max, if that has any
	return s.Where(func(x policy.Setting) bool { return !x.Key.IsRate() || x.Dev == first })
}

// adjustment returns settings in the form of the OCI spec, nil for none.
func adjustment(s policy.Settings) *api.ContainerAdjustment {
	if len(s) == 0 {
		return nil
	}
	adjust := &api.ContainerAdjustment{}
	unified := map[string]string{}
	for _, l := range s.Lines() {
		if before := unified[l.File]; before != "" {
			l.Text = before + "\n" + l.Text
		}
		unified[l.File] = l.Text
	}
	for file, text := range unified {
		adjust.AddLinuxUnified(file, strings.TrimPrefix(text, "default ")) // of io.weight
	}
	return adjust
}

// describe renders desired settings for a log field.
func describe(d policy.Desired) []string {
	var out []string
	for _, l := range d.Settings.Lines() {
		if name, isDisk := d.Disks[l.Dev]; isDisk && l.File == blkio.IOMax {
			out = append(out, strings.Replace(l.Text, l.Dev.String(), name, 1))
		} else {
			out = append(out, l.String())
		}
	}
	return out
}
