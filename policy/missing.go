package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// drop takes out the settings in control files that the node's kernel does not have. It returns an *annotation.Error about one that an
// annotation asks for, otherwise nil. Settings of a class or a claim, and the budget for the namespace, are left out with a warning.
func (p *Pod) drop(d *Desired, missing []string) (err error) {
	for _, file := range missing {
		if file == blkio.IOWeight && p.Of().HasBFQ() { // the plugin writes io.bfq.weight
			continue
		}
		err = p.First(err, d.dropFile(file))
	}
	return err
}

func (d *Desired) dropFile(file string) error {
	lost := d.Settings.In(file)
	if lack := lackOf(file); file == blkio.IOMax && len(d.Uses) > 0 {
		d.Uses = nil
		d.Warnings = append(d.Warnings, "the budget of the namespace: "+lack.Cause)
		d.warned(NotEnforced)
	}
	if len(lost) == 0 {
		return nil
	}
	d.Settings = d.Settings.Without(lost)
	if file == blkio.IOWeight {
		d.Weighted = nil
	}
	return d.lose(lost, lackOf(file))
}

// lose reports settings that are left out.
func (d *Desired) lose(lost Settings, lack *annotation.Problem) error {
	if i := slices.IndexFunc(lost, func(s Setting) bool { return s.Source.Kind == FromAnnotation }); i >= 0 {
		s := lost[i]
		of := annotation.Identity{From: s.Source.Origin(), Entry: s.Source.Entry, Text: s.Amount.String(), Reason: annotation.NoControl}
		if s.Key.IsRate() {
			of.Text = s.Key.String() + "=" + annotation.FormatAmount(s.Key, s.Amount)
		}
		return annotation.New(of, lack)
	}
	for i, s := range lost {
		if i > 0 && s.Source.Origin() == lost[i-1].Source.Origin() {
			continue
		}
		kind := NotEnforced
		if s.Source.isOfClaim() {
			kind = ClaimNotEnforced
		}
		if text := s.Source.Text() + ": " + lack.Cause; !slices.Contains(d.Warnings, text) {
			d.Warnings = append(d.Warnings, text)
			d.unenforced(annotation.Identity{From: s.Source.Origin(), Reason: annotation.NoControl}, lack.Cause)
		}
		d.warned(kind)
	}
	return nil
}

// lackOf returns what to report about a control file that the kernel does not have.
func lackOf(file string) *annotation.Problem {
	if file == blkio.IOMax {
		return &annotation.Problem{Cause: NoIOMax, Hint: "use a node whose kernel has it"}
	}
	return &annotation.Problem{Cause: "this node's kernel has no io.weight", Hint: "use limits, a node whose kernel has CONFIG_BLK_CGROUP_IOCOST, or weights: bfq in the node policy"}
}

// NoIOMax is why a node cannot limit at all.
const NoIOMax = "this node's kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)"
