package annotation

import (
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Target is the first word of an entry, which selects disks.
type Target struct {
	Kind   TargetKind
	Path   string // of TargetPath: absolute and clean
	Volume string // of TargetVolume: a DNS label
	Glob   string // of TargetDisk: a pattern of [path.Match]
	Claim  string // of TargetClaim: a DNS subdomain
	Text   string // as the user wrote it
}

// TargetKind is the form of a target.
type TargetKind uint8

// The kinds of targets. On one disk and in one scope the later one wins; a path, a volume and a
// claim are names of the same thing. Only the node policy can have a TargetDisk.
const (
	TargetStar TargetKind = iota
	TargetDisk
	TargetRootfs
	TargetPath
	TargetVolume
	TargetClaim
)

// claimPrefix is the start of the target of a claim, "pvc:CLAIM".
const claimPrefix = "pvc:"

// Rank orders targets by precedence: on one disk and in one scope the target with the
// larger rank wins.
func (t *Target) Rank() TargetKind { return min(t.Kind, TargetPath) }

// is reports whether two targets are one, however they were written.
func (t *Target) is(o *Target) bool {
	return t.Kind == o.Kind && t.Path == o.Path && t.Volume == o.Volume && t.Claim == o.Claim && t.Glob == o.Glob
}

// Name returns the path, "@VOLUME" or "pvc:CLAIM", for messages.
func (t *Target) Name() string {
	switch t.Kind {
	case TargetVolume:
		return "@" + t.Volume
	case TargetClaim:
		return claimPrefix + t.Claim
	}
	return t.Path
}

// Where returns the place of a mount for messages, such as `at "/data"`.
func (t *Target) Where() string {
	switch t.Kind {
	case TargetVolume:
		return "that is known to be of volume " + quote.Text(t.Volume)
	case TargetClaim:
		return "of claim " + quote.Text(t.Claim)
	}
	return "at " + quote.Text(t.Path)
}

// parseVolume parses "@data", by the rule for the names of a pod's volumes.
func (t *Target) parseVolume() *Problem {
	t.Volume = t.Text[1:]
	switch {
	case t.Volume == "":
		return &Problem{"missing volume name after @", "write for example " + quote.Text("@data wbps=50Mi")}
	case !IsLabel(t.Volume):
		return &Problem{"invalid volume name " + quote.Text(t.Volume), hintLabel}
	}
	return nil
}

// parseClaim parses "pvc:data", by the rule for the names of claims.
func (t *Target) parseClaim() *Problem {
	t.Claim = t.Text[len(claimPrefix):]
	switch {
	case t.Claim == "":
		return &Problem{"missing claim name after " + claimPrefix, "write for example " + quote.Text("pvc:data wbps=50Mi")}
	case !isSubdomain(t.Claim):
		return &Problem{"invalid claim name " + quote.Text(t.Claim), hintSubdomain}
	}
	return nil
}

// hintSubdomain describes the name of a claim.
const hintSubdomain = "use at most 253 of a-z, 0-9, - and ., as in the name of the claim"

// isSubdomain reports whether s is a DNS subdomain (RFC 1123), as the names of claims are.
func isSubdomain(s string) bool { return len(content.IsDNS1123Subdomain(s)) == 0 }
