package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// KeepStanding keeps limits of the pod as a whole that were in force before, while pod-total still has the entries that asked
// for them. Such an entry can name a mount that only ended containers had, of which a restarted plugin does not know. It adds
// to d, which is a result of Total, the limits of former on disks where d has none. Where d has a higher limit by an entry
// with a less specific target, the one of former stays.
func (p *Pod) KeepStanding(d *Desired, former Desired) {
	if d.Ignored || p.request.Empty() || p.request.Total() == nil {
		return
	}
	kept := former.Lowered.Join(former.Settings).Where(func(s Setting) bool {
		en := p.standing(s)
		if en == nil || d.refuses(s.Source) { // KeepGranted keeps those that are refused
			return false
		}
		now, isDecided := d.Settings.Get(s.Address)
		if !isDecided {
			return true
		}
		by := p.totalEntry(now.Source)
		return by != nil && s.Amount < now.Amount && en.Target.Rank() > by.Target.Rank()
	})
	if len(kept) > 0 {
		d.Settings = kept.Join(d.Settings)
		d.Disks = DiskNames(d.Settings.Join(d.Lowered), former.Disks, d.Disks)
	}
}

// standing returns the entry of pod-total that asks for a limit, or nil if there is none any more.
func (p *Pod) standing(s Setting) *annotation.Entry {
	en := p.totalEntry(s.Source)
	isStar := en != nil && en.Target.Kind == annotation.TargetStar
	if en == nil || !s.Key.IsRate() || en.Limits[s.Key] != s.Amount || clip(en.Target.Text) != s.Source.Target || isStar != s.Source.IsStar {
		return nil
	}
	return en
}

// totalEntry returns the entry of pod-total with the annotation and the number of a source, or nil.
func (p *Pod) totalEntry(s Source) *annotation.Entry {
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
