package annotation

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// LimitKeys returns the keys of limits: those of the kernel, and those that set two of them.
func LimitKeys() (names []string) {
	for k := range blkio.NumLimits {
		names = append(names, k.String())
	}
	return append(names, "bps", "iops")
}

// KeysOf returns the keys of the kernel that a key of limits sets. It returns nil for an unknown one.
func KeysOf(name string) []blkio.Key {
	switch name {
	case "bps":
		return []blkio.Key{blkio.Rbps, blkio.Wbps}
	case "iops":
		return []blkio.Key{blkio.Riops, blkio.Wiops}
	}
	if k, known := blkio.ParseKey(blkio.IOMax, name); known {
		return []blkio.Key{k}
	}
	return nil
}

// repeats returns the problem of a key of limits of which the entry already has a key of the kernel, or nil.
func (e *Entry) repeats(name string) *Problem {
	for _, k := range KeysOf(name) {
		if e.Limits[k] == blkio.Unset {
			continue
		}
		earlier := k.String()
		if e.paired[k] && k.IsBytes() {
			earlier = "bps"
		} else if e.paired[k] {
			earlier = "iops"
		}
		if earlier == name {
			return &Problem{"duplicate key " + quote.Text(name), "write it once"}
		}
		return &Problem{"the keys " + quote.Text(earlier) + " and " + quote.Text(name) + " set the same limit", "bps and iops set both directions; write one of the two keys"}
	}
	return nil
}

func (e *Entry) set(name string, rate blkio.Amount) {
	keys := KeysOf(name)
	for _, k := range keys {
		e.Limits[k], e.paired[k] = rate, len(keys) > 1
	}
}

// Kinds of annotations.
const (
	KindLimits = "limits"
	KindWeight = "weight"
	KindClass  = "class"
)

// Scopes of annotations. That of one container is container.NAME.
const (
	ScopeEach  = "containers"
	ScopeTotal = "pod-total"
	scopeNamed = "container."
)

// limitsKey is the annotation of limits of a claim, and on a pod that of the scope containers.
const limitsKey = KindLimits + "." + Domain

// IsKey reports whether the key of an annotation has the plugin's domain, valid or not.
func IsKey(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	kind, ok := strings.CutSuffix(prefix, Domain)
	return ok && (kind == "" || strings.HasSuffix(kind, "."))
}

// CutKey returns the kind of an annotation, known or not, and its scope.
func CutKey(key string) (kind, scope string) {
	prefix, scope, _ := strings.Cut(key, "/")
	return strings.TrimSuffix(strings.TrimSuffix(prefix, Domain), "."), scope
}

// What follows describes the grammar to generators of other forms of it, such as
// the admission policies of test/admission/policies.

// Scopes returns the scopes that are whole words. The other scopes are container.NAME.
func Scopes() []string { return []string{ScopeEach, ScopeTotal} }

// Suffixes returns the suffixes of Kubernetes quantities that a rate may have. The decimal ones come first, by
// their powers of 1000, then the binary ones, by their powers of 1024.
func Suffixes() []string {
	return []string{"k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
}
