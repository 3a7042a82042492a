package plan

import (
	"crypto/sha256"
	"fmt"
	"slices"
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

// specFiles are the control files of an OCI spec whose values the plugin keeps in force.
func specFiles() [2]string { return [...]string{blkio.IOMax, blkio.IOWeight} }

// Mark returns the mark of a decided container: an annotation of its OCI spec, by which a later process recognizes the values
// that this program put into the spec. It has a digest for each control file, because NRI refuses two plugins that set
// one file, so all values of a file are from one program. The author of a pod cannot forge a digest: it covers the ID of
// the container, which the runtime draws at random when it creates the container.
func Mark(container string, spec policy.Settings) string {
	out := []string{"true"}
	for _, file := range specFiles() {
		if of := spec.In(file); len(of) > 0 {
			out = append(out, digest(container, file, of))
		}
	}
	return strings.Join(out, " ")
}

func digest(container, file string, of policy.Settings) string {
	hash := sha256.New()
	fmt.Fprintln(hash, container)
	for _, l := range of.Lines() {
		fmt.Fprintln(hash, l)
	}
	return fmt.Sprintf("%s:%.8x", file, hash.Sum(nil))
}

// OCISpec has the values of io.max and io.weight in the OCI spec of a container, without those that a new cgroup has
// anyway. The runtime writes them again with each update of the container. crun writes them to a child of the container's
// cgroup as well.
type OCISpec struct {
	Own    policy.Settings // values that this program wrote at CreateContainer
	Others policy.Settings // values of another plugin, or of the runtime's configuration
}

// ReadSpec returns the values in the OCI spec of a container with a mark, "" for none.
func ReadSpec(container, mark string, unified map[string]string) (out OCISpec) {
	values, proofs := SpecValues(unified), strings.Fields(mark)
	for _, file := range specFiles() {
		of := values.In(file)
		if len(of) > 0 && slices.Contains(proofs, digest(container, file, of)) {
			out.Own = out.Own.Join(of)
		} else {
			out.Others = out.Others.Join(of)
		}
	}
	return out
}

// Values returns all values of the spec.
func (o *OCISpec) Values() policy.Settings { return o.Own.Join(o.Others) }

// stale returns the values of the spec that the desired ones replace, or that this program has to remove. With keep, a value
// without a desired one stays.
func (o *OCISpec) stale(desired policy.Settings, keep bool) (out []blkio.Replacement) {
	for _, s := range o.Values() {
		to, found := desired.Get(s.Address)
		_, isOwn := o.Own.Get(s.Address)
		switch {
		case found && max(to.Amount, to.Burst.Rate) > s.Amount && !s.Key.IsShare(): // crun's child has no limit below that of the container
			out = append(out, blkio.Replacement{Address: s.Address, From: s.Amount, To: max(to.Amount, to.Burst.Rate)})
		case !found && isOwn && !keep:
			out = append(out, blkio.Replacement{Address: s.Address, From: s.Amount, To: s.Removal().Amount})
		}
	}
	return out
}
