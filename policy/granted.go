package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// StillGranted is the kind of the warning that KeepGranted adds.
const StillGranted blkio.WarningKind = "still_granted"

const stillGranted = "this node's policy now rejects what it granted before: that stays in force for as long as the container runs"

// claimKept is the warning of KeepGranted about limits of claims.
const claimKept = "limits of a claim do not count: those that were granted before stay in force for as long as the container runs"

// KeepGranted keeps limits that an earlier policy granted and the current one rejects. Without it, containers
// that requested the lowest limits would become unlimited when the floors are raised. It adds to d those
// settings of former that come from entries that d rejects, and a warning. A lower value of a class in d stays
// in force, so that a stricter policy reaches running containers. The granted value is then noted in d.Lowered,
// and is in force again without the class.
func (d *Desired) KeepGranted(former Desired) {
	class := d.Settings.Where(Setting.isOfClass)
	decided := d.Settings.Without(class)
	granted := former.Lowered.Join(former.Settings).Where(func(s Setting) bool {
		now, isDecided := decided.Get(s.Address)
		isAbove := s.Source.Kind == FromAnnotation && now.isOfClaim() // the annotation beats the claim, rejected or not
		return d.refuses(s.Source) && (!isDecided || isAbove || s.outlives(now))
	})
	if len(granted) == 0 {
		return
	}
	decided = decided.Without(granted)
	var kept Settings
	if !d.Ignored {
		kept = granted.Where(func(s Setting) bool { return !class.below(s) })
	}
	d.Settings, d.Lowered = decided.Join(kept).Join(class), granted.Without(kept)
	d.Disks = DiskNames(d.Settings.Join(d.Lowered), former.Disks, d.Disks)
	if ofClaims := kept.Where(Setting.isOfClaim); len(ofClaims) < len(kept) {
		d.Warnings = append(d.Warnings, stillGranted)
		d.warned(StillGranted)
	} else if len(kept) > 0 {
		d.Warnings = append(d.Warnings, claimKept)
		d.warned(StillGranted)
	}
}

// isOfClass reports whether a setting is of a class, whether a rule or an annotation chose it.
func (s Setting) isOfClass() bool { return s.Source.Kind == FromClass || s.Source.Kind == FromRule }

// isOfClaim reports whether a setting is of the limits of a claim.
func (s Setting) isOfClaim() bool { return s.Source.Kind == FromClaim }

// outlives reports whether a granted limit of a claim that does not count now stays, although another entry or claim limits the
// same disk. The author of a claim must not raise the limits of a pod by a mistake. Annotations beat claims.
func (s Setting) outlives(now Setting) bool {
	mayStay := s.Source.namesClaim() || s.isOfClaim() && now.isOfClaim()
	return mayStay && s.Key.IsRate() && s.Amount < now.Amount
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
	if s.Kind == FromClaim {
		isAbout := func(e *annotation.Error) bool { return concernsClaim(e, s) }
		return slices.ContainsFunc(d.Claims, isAbout) || slices.ContainsFunc(d.Errors, isAbout)
	}
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
		return e.From == s.Origin() && (e.Entry == 0 || e.Entry == s.Entry)
	case FromClass:
		kind, _ := annotation.CutKey(e.From.Annotation)
		return kind == annotation.KindClass && (e.Text == "" || e.Text == s.Name)
	}
	return false
}

// concernsClaim reports whether an error is about the limits of the claim of a source. They count as a whole or not at all.
func concernsClaim(e *annotation.Error, s Source) bool {
	return e.From.Claim != "" && e.From.Claim == s.Origin().Claim
}
