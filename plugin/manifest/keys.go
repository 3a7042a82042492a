package manifest

import (
	"slices"
	"strings"
	"unicode"

	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Keys describes the keys of the plugin's annotations, KIND.DOMAIN/SCOPE.
type Keys struct {
	Domain string   // "blkio.noderesource.dev"
	Kinds  []string // "limits", "weight", "class"
	// Parameters are the keys of rates in a VolumeAttributesClass.
	Parameters []string
}

// maxKey bounds the keys that are examined. The API allows 253 bytes before the slash and
// 63 after it.
const maxKey = 320

// IsOurs reports whether the prefix of a key is the domain or a subdomain of it. The kind
// and the scope may still be unknown; the policy reports that.
func (k Keys) IsOurs(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return k.isPrefix(prefix)
}

func (k Keys) isPrefix(prefix string) bool {
	return prefix == k.Domain || strings.HasSuffix(prefix, "."+k.Domain)
}

// Meant returns the correct key for a misspelled one. It returns false if the key has an
// effect, and if it resembles no such key. IsOurs is true for the result.
//
// The domain noderesource.dev belongs to all NRI plugins. So the key of another plugin is
// not taken for a misspelled one of this plugin if it differs by more than two letters.
func (k Keys) Meant(key string) (string, bool) {
	if len(key) > maxKey || k.IsOurs(key) || strings.ContainsFunc(key, func(r rune) bool { return r > unicode.MaxASCII }) {
		return "", false
	}
	prefix, scope, hasSlash := strings.Cut(key, "/")
	if hasSlash && scope != "" && k.isPrefix(scope) {
		return scope + "/" + prefix, true // containers/limits.DOMAIN
	}
	lower := strings.ToLower(prefix)
	if before, after, ok := strings.Cut(lower, k.Domain+"."); ok && (before == "" || strings.HasSuffix(before, ".")) {
		// limits.DOMAIN.containers
		return before + k.Domain + "/" + strings.Trim(prefix[len(prefix)-len(after):]+"/"+scope, "/"), true
	}
	meant, ok := k.spelled(lower)
	if !ok {
		meant, ok = k.ordered(lower)
	}
	if ok && hasSlash {
		meant += "/" + scope
	}
	return meant, ok
}

// spelled finds the prefix that a misspelled one stands for.
func (k Keys) spelled(prefix string) (string, bool) {
	known := []string{k.Domain}
	for _, kind := range k.Kinds {
		known = append(known, kind+"."+k.Domain)
	}
	if meant, ok := spelling.Nearest(prefix, known...); ok {
		return meant, true
	}
	kind, rest, _ := strings.Cut(prefix, ".")
	if meant, ok := spelling.Nearest(rest, k.Domain); ok {
		return k.kind(kind) + meant, true
	}
	// blkio.noderesource.com
	name, _ := cutLast(k.Domain)
	if rest, top := cutLast(prefix); top != "" && (rest == name || strings.HasSuffix(rest, "."+name)) {
		return strings.TrimSuffix(rest, name) + k.Domain, true
	}
	return "", false
}

// ordered finds the prefix with the same labels in another order, or without one of them:
// limits.noderesource.dev.
func (k Keys) ordered(prefix string) (string, bool) {
	domain := strings.Split(k.Domain, ".")
	ofDomain, kind, own := 0, "", false
	for label := range strings.SplitSeq(prefix, ".") {
		switch {
		case slices.Contains(domain, label):
			ofDomain++
			own = own || label == domain[0]
		case slices.Contains(k.Kinds, label) && kind == "":
			kind, own = label, true
		default:
			return "", false
		}
	}
	if !own || ofDomain < len(domain)-1 {
		return "", false
	}
	return k.kind(kind) + k.Domain, true
}

// kind returns the beginning of a prefix: the known kind that is nearest to a label, or
// the label.
func (k Keys) kind(label string) string {
	if label == "" {
		return ""
	}
	if known, ok := spelling.Nearest(label, k.Kinds...); ok {
		label = known
	}
	return label + "."
}

// cutLast cuts at the last dot. Without one the second result is "".
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}
