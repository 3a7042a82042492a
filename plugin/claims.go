package plugin

import (
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/policy"
)

// claimsOf returns the claims of the pod of a document. They are unknown if the document omits them.
func claimsOf(d *poddoc.Document) *policy.Claims {
	if cause := d.Omitted[poddoc.PartVolumes]; cause != "" {
		return policy.UnknownClaims(cause)
	}
	return policy.NewClaims(d.Volumes)
}
