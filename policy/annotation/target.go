package annotation

import "github.com/nri-blkio/nri-blkio/policy/quote"

// Target is the first word of an entry, which selects disks.
type Target struct {
	Kind   TargetKind
	Path   string // of TargetPath: absolute and clean
	Volume string // of TargetVolume: a DNS label
	Glob   string // of TargetDisk: a pattern of [path.Match]
	Claim  string // of TargetClaim, which has no text: limits of a claim name no target
	Text   string // as the user wrote it
}

// TargetKind is the form of a target.
type TargetKind uint8

// The kinds of targets. On one disk and in one scope the later one wins; a path, a volume and a
// claim are names of the same thing. Only the node policy can have a TargetDisk, and only the limits of a claim a TargetClaim.
const (
	TargetStar TargetKind = iota
	TargetDisk
	TargetRootfs
	TargetPath
	TargetVolume
	TargetClaim
)

// Rank orders targets by precedence: on one disk and in one scope the target with the
// larger rank wins.
func (t *Target) Rank() TargetKind { return min(t.Kind, TargetPath) }

// is reports whether two targets are one, however they were written.
func (t *Target) is(o *Target) bool {
	return t.Kind == o.Kind && t.Path == o.Path && t.Volume == o.Volume && t.Claim == o.Claim && t.Glob == o.Glob
}

// Name returns the path, "@VOLUME" or "claim CLAIM", for messages.
func (t *Target) Name() string {
	switch t.Kind {
	case TargetVolume:
		return "@" + t.Volume
	case TargetClaim:
		return "claim " + t.Claim
	}
	return t.Path
}

// Where returns the place of a mount for messages, such as `at "/data"`.
func (t *Target) Where() string {
	if t.Kind == TargetVolume {
		return "of volume " + quote.Text(t.Volume)
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
