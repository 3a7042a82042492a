package policy

import "github.com/nri-blkio/nri-blkio/policy/quote"

// targetKind is the form of a target.
type targetKind uint8

const (
	targetStar targetKind = iota
	targetRootfs
	targetPath
	targetVolume
)

// rank orders the targets of one scope: on one disk the larger one wins. A path
// and a volume are two names of the same thing.
func (t *target) rank() targetKind { return min(t.kind, targetPath) }

// is reports whether two targets are one, however they were written.
func (t *target) is(o *target) bool {
	return t.kind == o.kind && t.path == o.path && t.volume == o.volume
}

// name is what a path or a volume is reported by.
func (t *target) name() string {
	if t.kind == targetVolume {
		return "@" + t.volume
	}
	return t.path
}

// where is how no mount was found.
func (t *target) where() string {
	if t.kind == targetVolume {
		return "that is known to be of volume " + quote.Text(t.volume)
	}
	return "at " + quote.Text(t.path)
}

// parseVolume parses "@data", by the rule for the names of a pod's volumes.
func (t *target) parseVolume() *problem {
	t.volume = t.text[1:]
	switch {
	case t.volume == "":
		return &problem{"missing volume name after @", "write for example " + quote.Text("@data wbps=50Mi")}
	case !isLabel(t.volume):
		return &problem{"invalid volume name " + quote.Text(t.volume), hintLabel}
	}
	return nil
}
