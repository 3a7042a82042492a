package annotation

import "strings"

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
