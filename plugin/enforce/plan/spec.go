package plan

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// InSpec returns the part of the desired settings that the spec can carry. Where
// the runtime may write the value in one go, that is one disk: the kernel
// takes one device per write, and runc 1.1 does not split lines (docs/reference/quirks.md).
// StartContainer writes the other disks. What a fresh cgroup has anyway is left out.
func InSpec(s policy.Settings, splitsLines bool) policy.Settings {
	s = s.Where(func(x policy.Setting) bool { return x.IsLimit() })
	if splitsLines || len(s) == 0 {
		return s
	}
	first := s[0].Dev // of io.max, if that has any
	return s.Where(func(x policy.Setting) bool { return !x.Key.IsRate() || x.Dev == first })
}

// Unified returns settings in the form of the OCI spec: the text of each control file.
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

// SpecValues returns the io.max and the io.weight that an OCI spec has, without what a
// fresh cgroup has anyway. We put them there, or another plugin, or a runtime's configuration.
func SpecValues(unified map[string]string) policy.Settings {
	if len(unified) == 0 {
		return nil // Mostly it is so, and errors take time to make.
	}
	var out []policy.Setting
	limits, _ := blkio.ParseValues(blkio.IOMax, unified["io.max"]) // not ours if it cannot be parsed
	for _, v := range limits.Sorted() {
		out = append(out, policy.Setting{Value: v})
	}
	if weight, err := blkio.ParseAmount(unified["io.weight"]); err == nil {
		out = append(out, policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: weight}})
	}
	return policy.NewSettings(out...).Where(func(s policy.Setting) bool { return s.IsLimit() })
}
