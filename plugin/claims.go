package plugin

import (
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// claimsOf returns the claims of the pod of a document. They are unknown if the document omits them.
func claimsOf(d *poddoc.Document) *policy.Claims {
	if cause := d.Omitted[poddoc.PartVolumes]; cause != "" {
		return policy.UnknownClaims(cause)
	}
	volumes := make([]policy.ClaimVolume, 0, len(d.Volumes))
	for i := range d.Volumes {
		v := &d.Volumes[i]
		out := policy.ClaimVolume{Claim: v.Claim, Limits: v.Limits}
		for _, m := range v.Mounts {
			out.Places = append(out.Places, policy.Place{Container: m.Container, Path: m.Path})
		}
		if c := v.Class; c != nil {
			out.Class = policy.ClaimClass{Name: c.Name, Rates: ratesOf(c)}
		}
		if parts := slices.Sorted(maps.Keys(v.Omitted)); len(parts) > 0 {
			out.Unknown = v.Omitted[parts[0]]
		}
		volumes = append(volumes, out)
	}
	return policy.NewClaims(volumes)
}

// ratesOf returns the rates of a class. A key with the plugin's prefix is before a plain one.
func ratesOf(c *poddoc.Class) (out []annotation.Rate) {
	for _, prefix := range []string{poddoc.OwnPrefix, ""} {
		for k := range blkio.NumLimits {
			parameter := prefix + k.String()
			if text, found := c.Rates[parameter]; found {
				out = append(out, annotation.Rate{Parameter: parameter, Key: k, Text: strings.TrimSpace(text)})
			}
		}
	}
	return out
}
