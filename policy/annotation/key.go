package annotation

import "strings"

// IsKey reports whether the key of an annotation has the plugin's domain, valid or not.
func IsKey(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return isOurs(prefix)
}
