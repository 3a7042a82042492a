package inventory

import (
	"errors"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Within returns a copy of the spec without what no decision depends on, and the memory in bytes
// that the copy takes. If that would be more than room, the copy lacks the last mounts and
// devices, and LeftOut is their number. Then Container.Err returns an error.
func (s *Spec) Within(room int) (*Spec, int) {
	out, size := &Spec{Name: s.Name, LeftOut: s.LeftOut}, 0
	for i := range s.Mounts {
		m := s.Mounts[i].essential()
		if size += m.size(); size > room {
			out.LeftOut += len(s.Mounts) - i
			break
		}
		out.Mounts = append(out.Mounts, m)
	}
	out.Mounts = slices.Clip(out.Mounts)
	for _, d := range s.Devices {
		if d.Type != "b" && !d.IsHostOnly() {
			continue
		}
		if size += deviceSize + len(d.Path); size > room {
			out.LeftOut++
			continue
		}
		out.Devices = append(out.Devices, d)
	}
	return out, min(size, room)
}

// essential returns the mount without what no decision depends on.
func (m *Mount) essential() Mount {
	if !m.IsBind() {
		return Mount{Destination: m.Destination, Type: m.Type}
	}
	out := Mount{Source: m.Source, Destination: m.Destination, Type: "bind"}
	n := 0
	for _, o := range m.Options {
		if essentialOption(o) != "" {
			n++
		}
	}
	if n > 0 {
		out.Options = make([]string, 0, n)
	}
	for _, o := range m.Options {
		if o = essentialOption(o); o != "" {
			out.Options = append(out.Options, o)
		}
	}
	return out
}

// essentialOption returns an option that decisions depend on as a constant, so that the text from
// the runtime's message is not kept. It returns "" for any other option.
func essentialOption(o string) string {
	for _, known := range [...]string{"rbind", "ro", "slave", "rslave", "shared", "rshared"} {
		if o == known {
			return known
		}
	}
	return ""
}

// The memory in bytes that a string, a Mount and a Device take without their text.
const (
	stringSize = 16
	mountSize  = 3*stringSize + 24
	deviceSize = 2*stringSize + 8
)

// size returns the memory in bytes that the mount takes.
func (m *Mount) size() int {
	return mountSize + len(m.Source) + len(m.Destination) + len(m.Type) + len(m.Options)*stringSize
}

var errLeftOut = errors.New("some mounts of the container are not kept")

// leftOut stands for the mounts that the spec lacks: it is around each path that no other mount is
// around. Its disks cannot be known.
func (s *Spec) leftOut() []policy.Mount {
	if s.LeftOut == 0 {
		return nil
	}
	return []policy.Mount{{Destination: "/", Backing: blkio.Backing{
		Err:    errLeftOut,
		Reason: "the plugin did not keep all of the container's mounts while the node policy had no class for it; restart the container",
	}}}
}
