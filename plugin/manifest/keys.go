package manifest

import (
	"slices"
	"strings"
	"unicode"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// claimKey is the key of the annotation that limits a claim.
const claimKey = annotation.KindLimits + "." + annotation.Domain

// maxKey bounds the keys that are examined. The API allows 253 bytes before the slash and
// 63 after it.
const maxKey = 320

// meantKey returns the correct key for a misspelled one. It returns false if the key has the domain, and if it resembles no
// such key. The result has the domain.
//
// The domain noderesource.dev belongs to all NRI plugins. So the key of another plugin is
// not taken for a misspelled one of this plugin if it differs by more than two letters.
func meantKey(key string) (string, bool) {
	if len(key) > maxKey || annotation.IsKey(key) || strings.ContainsFunc(key, func(r rune) bool { return r > unicode.MaxASCII }) {
		return "", false
	}
	prefix, scope, hasSlash := strings.Cut(key, "/")
	if hasSlash && scope != "" && annotation.IsKey(scope) {
		return scope + "/" + prefix, true // containers/limits.DOMAIN
	}
	lower := strings.ToLower(prefix)
	if before, after, ok := strings.Cut(lower, annotation.Domain+"."); ok && (before == "" || strings.HasSuffix(before, ".")) {
		// limits.DOMAIN.containers
		return before + annotation.Domain + "/" + strings.Trim(prefix[len(prefix)-len(after):]+"/"+scope, "/"), true
	}
	meant, ok := spelled(lower)
	if !ok {
		meant, ok = ordered(lower)
	}
	if ok && hasSlash {
		meant += "/" + scope
	}
	return meant, ok
}

// spelled finds the prefix that a misspelled one stands for.
func spelled(prefix string) (string, bool) {
	known := []string{annotation.Domain}
	for _, kind := range annotation.Kinds() {
		known = append(known, kind+"."+annotation.Domain)
	}
	if meant, ok := spelling.Nearest(prefix, known...); ok {
		return meant, true
	}
	kind, rest, _ := strings.Cut(prefix, ".")
	if meant, ok := spelling.Nearest(rest, annotation.Domain); ok {
		return kindOf(kind) + meant, true
	}
	// blkio.noderesource.com
	name, _ := cutLast(annotation.Domain)
	if rest, top := cutLast(prefix); top != "" && (rest == name || strings.HasSuffix(rest, "."+name)) {
		return strings.TrimSuffix(rest, name) + annotation.Domain, true
	}
	return "", false
}

// ordered finds the prefix with the same labels in another order, or without one of them:
// limits.noderesource.dev.
func ordered(prefix string) (string, bool) {
	domain := strings.Split(annotation.Domain, ".")
	ofDomain, kind, own := 0, "", false
	for label := range strings.SplitSeq(prefix, ".") {
		switch {
		case slices.Contains(domain, label):
			ofDomain++
			own = own || label == domain[0]
		case slices.Contains(annotation.Kinds(), label) && kind == "":
			kind, own = label, true
		default:
			return "", false
		}
	}
	if !own || ofDomain < len(domain)-1 {
		return "", false
	}
	return kindOf(kind) + annotation.Domain, true
}

// kindOf returns the beginning of a prefix: the known kind that is nearest to a label, or
// the label.
func kindOf(label string) string {
	if label == "" {
		return ""
	}
	if known, ok := spelling.Nearest(label, annotation.Kinds()...); ok {
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
