package plan

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// InSpec returns the desired settings that go into the OCI spec. It leaves out values that a new cgroup has
// anyway, and the weights of single disks. The kernel refuses those before io.cost is enabled on the disk,
// which would fail the container. Unless the runtime splits lines, InSpec returns the settings of one disk
// only. The kernel takes one device for each write, and runc 1.1 does not split lines
// (docs/reference/quirks.md). The settings of other disks are written at StartContainer.
func InSpec(s policy.Settings, splitsLines bool) policy.Settings {
	s = s.Where(func(x policy.Setting) bool { return x.IsLimit() && x.Key != blkio.DiskWeight })
	if splitsLines || len(s) == 0 {
		return s
	}
	first := s[0].Dev // of io.max, if that has any
	return s.Where(func(x policy.Setting) bool { return !x.Key.IsRate() || x.Dev == first })
}

// Unified returns settings in the form of the OCI spec: the text for each control file.
func Unified(s policy.Settings) map[string]string {
	out := map[string]string{}
	for _, l := range s.Lines() {
		text := strings.TrimPrefix(l.Text, "default ") // of io.weight
		if before := out[l.File]; before != "" {
			text = before + "\n" + text
		}
		out[l.File] = text
	}
	return out
}

// SpecValues returns the values of io.max and io.weight in an OCI spec, without those that
// a new cgroup has anyway. This program, another plugin, or the runtime's configuration may
// have set them.
func SpecValues(unified map[string]string) policy.Settings {
	if len(unified) == 0 {
		return nil // Mostly it is so, and errors take time to make.
	}
	var out []policy.Setting
	limits, _ := blkio.ParseValues(blkio.IOMax, unified["io.max"]) // a text that cannot be parsed is not from this program
	for _, v := range limits.Sorted() {
		out = append(out, policy.Setting{Value: v})
	}
	if weight, err := blkio.ParseAmount(unified["io.weight"]); err == nil {
		out = append(out, policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: weight}})
	}
	return policy.NewSettings(out...).Where(func(s policy.Setting) bool { return s.IsLimit() })
}
