package check

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// claimFindings returns the mistakes in the limits of claims and of classes of claims. On a node such limits do not count at all.
func claimFindings(set *manifest.Set) (out []manifest.Finding) {
	for i := range set.Claims {
		c := &set.Claims[i]
		if c.Limits == nil {
			continue
		}
		if _, err := annotation.ParseClaim(c.Name, *c.Limits, cmp.Or(c.Request.Size, anySize)); err != nil {
			field := c.Template
			if field == "" {
				field = "metadata.annotations"
			}
			severity := manifest.Error
			if err.Reason == annotation.OfPod { // operators copy annotations to pods and claims alike
				severity = manifest.Warning
			}
			out = append(out, manifest.Finding{Position: c.Position, Object: c.Object, Field: field, Severity: severity, Text: err.WithoutOrigin()})
		}
	}
	for i := range set.Classes {
		out = append(out, classFindings(&set.Classes[i])...)
	}
	return out
}

// anySize is the size of a claim for limits that are checked for their grammar only: those of a class, and of a claim without a size.
// Claims of all sizes and namespaces can have a class, so no bounds are certain to apply to it.
const anySize = 1

// classFindings returns the mistakes in the parameters of a class. One in a parameter without the prefix is a warning: another program
// may read it.
func classFindings(c *manifest.VolumeClass) (out []manifest.Finding) {
	known, own := annotation.Parameters(), annotation.OwnParameters()
	valid := map[string]string{} // so far
	add := func(key string, severity manifest.Severity, text string) {
		at := c.Position
		at.Line = c.Lines[key]
		out = append(out, manifest.Finding{Position: at, Object: c.Object, Field: "parameters", Severity: severity, Text: text})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Parameters)) {
		isOwn := strings.HasPrefix(key, annotation.OwnPrefix)
		severity := manifest.Warning
		if isOwn {
			severity = manifest.Error
		}
		if !slices.Contains(known, key) {
			hint := spelling.Hint(key, own...)
			switch {
			case isOwn && hint == "":
				hint = "there are " + strings.Join(own, ", ")
			case !isOwn && (hint == "" || !strings.Contains(key, "/")):
				continue // of the driver
			}
			add(key, manifest.Error, "unknown parameter "+quote.Text(key)+" ("+hint+")")
			continue
		}
		valid[key] = c.Parameters[key]
		if _, err := annotation.ParseRates("", c.Name, valid, anySize); err != nil {
			add(key, severity, err.WithoutOrigin())
			delete(valid, key)
		}
	}
	return out
}
