package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// StillGranted is the kind of the warning that Carry adds.
const StillGranted blkio.WarningKind = "still_granted"

const stillGranted = "this node's policy now rejects what it granted before: that stays in force for as long as the container runs"

// claimKept is the warning of Carry about limits of claims.
const claimKept = "limits of a claim do not count: those that were granted before stay in force for as long as the container runs"

// Carry adds to d, a decision for one cgroup, what that cgroup was granted before and what still stands. Without it, a container whose
// limits a new policy rejects would become unlimited. before is nil if nothing was granted,
// and container is the name, "" for the pod as a whole. A value stands if
//
//   - what asked for it is refused or ignored now: in place of a class, unless that is lower. Then the value is noted in d.Lowered, and
//     is in force again without the class;
//   - it is of a claim, or of an entry of a class that names a volume, and the volumes of the pod are unknown;
//   - it is carried: pod-total has the same entry still, which can name a mount that only ended containers had. While that is refused,
//     the value is at least noted in d.Lowered.
//
// Another value that is asked for displaces it. Exceptions are below, with their reasons. In mode observe only the last case counts.
func (p *Pod) Carry(d, before *Desired, container string) {
	if before == nil {
		return
	}
	isAll := len(d.Errors)+len(d.Claims) == 0 && !d.Ignored && p.KnowsVolumes()
	if isNew := len(before.Lowered)+len(before.Settings) == 0; isNew || isAll && len(before.granted(Setting.isCarried)) == 0 {
		return
	}
	isAsked := func(s Setting) bool { return p.stillAsks(d, s, container) }
	asked := before.Lowered.Where(isAsked).Lowest(before.Settings.Where(isAsked))
	d.Settings = asked.stand().Join(d.Settings)
	isChanged := p.Mode() == ModeEnforce && p.carryRefused(d, before)
	waiting := before.granted(func(s Setting) bool {
		now, _ := d.Settings.Get(s.Address)
		return s.isCarried() && now.Value != s.Value && d.refuses(s.Source) && !p.isReplaced(s)
	})
	d.Lowered = d.Lowered.Join(waiting)
	if isChanged || len(asked)+len(waiting) > 0 {
		d.Disks = DiskNames(d.Settings.Join(d.Lowered), before.Disks, d.Disks)
	}
}

// carryRefused adds what was granted and is refused now, or cannot be decided. It reports whether there is something.
func (p *Pod) carryRefused(d, before *Desired) bool {
	class := d.Settings.Where(Setting.isOfClass)
	decided := d.Settings.Without(class)
	standing := before.granted(func(s Setting) bool {
		now, isDecided := decided.Get(s.Address)
		if !d.refuses(s.Source) {
			return p.MissesClaims() && s.isOfClaim() && !isDecided
		}
		if p.isReplaced(s) {
			return false
		}
		isAbove := s.Source.Kind == FromAnnotation && now.isOfClaim() // the annotation beats the claim, rejected or not
		return !isDecided || isAbove || s.outlives(now)
	})
	if len(standing) == 0 {
		return false
	}
	standing = standing.stand()
	kept := standing.Where(func(s Setting) bool {
		lowered, wasLowered := before.Lowered.Get(s.Address)
		isRefused := d.refuses(s.Source)
		isIgnored := isRefused && d.Ignored
		isBelow := (isRefused || wasLowered && lowered.Value == s.Value) && class.below(s)
		return !isIgnored && !isBelow
	})
	d.Lowered = standing.Without(kept)
	d.Settings = kept.Join(decided.Without(standing)).Join(class)
	refused := kept.Where(func(s Setting) bool { return d.refuses(s.Source) })
	switch ofClaims := refused.Where(Setting.isOfClaim); {
	case len(ofClaims) < len(refused):
		d.Warnings = append(d.Warnings, stillGranted)
		d.warned(StillGranted)
	case len(refused) > 0:
		d.Warnings = append(d.Warnings, claimKept)
		d.warned(StillGranted)
	}
	return true
}

// stillAsks reports whether a value is still asked for, on a disk that the decision d does not know about. Where d has a lower value, or
// one that is as specific, that counts.
func (p *Pod) stillAsks(d *Desired, s Setting, container string) bool {
	now, isDecided := d.Settings.Get(s.Address)
	if isDecided && now.Amount <= s.Amount {
		return false
	}
	if container != "" {
		return p.classStillNames(container, s, now)
	}
	en := p.standing(d, s)
	if en == nil || !isDecided {
		return en != nil
	}
	by := p.totalEntry(now.Source)
	return by != nil && en.Target.Rank() > by.Target.Rank()
}

// classStillNames reports whether the class of a container has the entry that has set a limit on a volume by its name, while the volumes
// of the pod are unknown: its author can make them unknown by annotations that are too long. now is what is decided: an entry whose
// target has decided needs no more of the pod.
func (p *Pod) classStillNames(container string, s, now Setting) bool {
	if p.KnowsVolumes() || !s.Key.IsRate() || !s.Source.namesVolume() || now.Source.Target == s.Source.Target {
		return false
	}
	class, source := p.classOf(container)
	return class != nil && class.limits != nil && s.Source.Kind == source.Kind && s.Source.Name == source.Name &&
		slices.ContainsFunc(class.limits.Entries, func(e annotation.Entry) bool { return clip(e.Target.Text) == s.Source.Target })
}

// standing returns the entry of pod-total that still asks for a carried limit, or nil if there is none any more.
func (p *Pod) standing(d *Desired, s Setting) *annotation.Entry {
	en := p.totalEntry(s.Source)
	if !s.isCarried() || d.Ignored || d.refuses(s.Source) || p.isReplaced(s) || en != nil && clip(en.Target.Text) != s.Source.Target {
		return nil
	}
	return en
}

// isReplaced reports whether pod-total has another entry in place of the one that has asked for a carried value. A long record has no
// targets.
func (p *Pod) isReplaced(s Setting) bool {
	en := p.totalEntry(s.Source)
	if !s.isCarried() || en == nil {
		return false
	}
	isStar, hasTarget := en.Target.Kind == annotation.TargetStar, s.Source.Target != ""
	return !s.Key.IsRate() || en.Limits[s.Key] != s.Amount || isStar != s.Source.IsStar || hasTarget && clip(en.Target.Text) != s.Source.Target
}

// totalEntry returns the entry of pod-total with the annotation and the number of a source, or nil.
func (p *Pod) totalEntry(s Source) *annotation.Entry {
	if !p.AsksTotal() {
		return nil
	}
	l := p.request.Total().Limits
	if l == nil || s.Kind != FromAnnotation || s.Origin() != l.From {
		return nil
	}
	i := slices.IndexFunc(l.Entries, func(en annotation.Entry) bool { return en.Number == s.Entry })
	if i < 0 {
		return nil
	}
	return &l.Entries[i]
}

// granted returns what was granted of that for which keep is true: the noted value before the one in force at its address.
func (d *Desired) granted(keep func(Setting) bool) Settings {
	return d.Lowered.Where(keep).Join(d.Settings.Where(keep))
}

func (s Setting) isCarried() bool { return s.Basis == Carried }

// isOfClass reports whether a setting is of a class, whether a rule or an annotation chose it.
func (s Setting) isOfClass() bool { return s.Source.Kind == FromClass || s.Source.Kind == FromRule }

// isOfClaim reports whether a setting is of the limits of a claim.
func (s Setting) isOfClaim() bool { return s.Source.isOfClaim() }

// WithoutAsked returns what other annotations may leave of d: what is carried, and what claims have decided, or a class by the name of a
// volume. If the new ones are refused, what the former ones asked for does not stand.
func (d *Desired) WithoutAsked() Desired {
	if d == nil {
		return Desired{}
	}
	stays := func(s Setting) bool {
		return s.isCarried() || s.isOfClaim() || s.isOfClass() && s.Source.namesVolume()
	}
	return Desired{Settings: d.Settings.Where(stays), Lowered: d.Lowered.Where(stays), Disks: d.Disks}
}

// OnlyCarried returns what is carried of what a pod as a whole was granted. It is not in force until it turns out to be asked for still.
func (d *Desired) OnlyCarried() Desired {
	return Desired{Lowered: d.granted(Setting.isCarried), Disks: d.Disks}
}

// outlives reports whether a granted limit of a claim that does not count now stays, although another entry or claim limits the
// same disk. The author of a claim must not raise the limits of a pod by a mistake. Annotations beat claims.
func (s Setting) outlives(now Setting) bool {
	mayStay := s.Source.namesVolume() || s.isOfClaim() && now.isOfClaim()
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
	if s.isOfClaim() {
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
