package policy

import (
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// StillGranted is the kind of the warning that KeepGranted adds.
const StillGranted blkio.WarningKind = "still_granted"

const stillGranted = "this node's policy now rejects what it granted before: that stays in force for as long as the container runs"

// KeepGranted keeps limits that an earlier policy granted and the current one rejects. Without it, containers
// that requested the lowest limits would become unlimited when the floors are raised. It adds to d those
// settings of former that come from entries that d rejects, and a warning. A lower value of a class in d stays
// in force, so that a stricter policy reaches running containers. The granted value is then noted in d.Lowered,
// and is in force again without the class.
func (d *Desired) KeepGranted(former Desired) {
	class := d.Settings.Where(func(s Setting) bool { return s.Source.Kind == FromClass || s.Source.Kind == FromRule })
	decided := d.Settings.Without(class)
	granted := former.Lowered.Join(former.Settings).Without(decided).Where(func(s Setting) bool { return d.refuses(s.Source) })
	if len(granted) == 0 {
		return
	}
	var kept Settings
	if !d.Ignored {
		kept = granted.Where(func(s Setting) bool { return !class.below(s) })
	}
	d.Settings, d.Lowered = decided.Join(kept).Join(class), granted.Without(kept)
	d.Disks = DiskNames(d.Settings.Join(d.Lowered), former.Disks, d.Disks)
	if len(kept) > 0 {
		d.Warnings = append(d.Warnings, stillGranted)
		d.warned(StillGranted)
	}
}

// below reports whether the settings of a class have a lower value in place of x. The weight of a class applies
// to all disks.
func (s Settings) below(x Setting) bool {
	own, found := s.Get(x.Address)
	if !found && x.Key == blkio.DiskWeight {
		own, found = s.Weight()
	}
	return found && own.Amount < x.Amount
}

// refuses reports whether the source of a value is among the errors, or is an annotation that is ignored.
func (d *Desired) refuses(s Source) bool {
	if d.Ignored {
		return s.Kind == FromAnnotation || s.Kind == FromClass
	}
	return slices.ContainsFunc(d.Errors, func(e *annotation.Error) bool { return concerns(e, s) })
}

// concerns reports whether an error is about the source s. For a class it is not known which annotation chose
// it. But an error about a choice has the name of the class, or no text if it rejects annotations as such.
func concerns(e *annotation.Error, s Source) bool {
	switch s.Kind {
	case FromAnnotation:
		return e.Annotation == s.Name && (e.Entry == 0 || e.Entry == s.Entry)
	case FromClass:
		return strings.HasPrefix(e.Annotation, classKeys) && (e.Text == "" || e.Text == s.Name)
	}
	return false
}

// classKeys begins the keys of annotations that choose a class.
const classKeys = "class." + annotation.Domain + "/"
