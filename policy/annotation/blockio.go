package annotation

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// blockioPrefix begins the keys of annotations by which containerd and CRI-O choose a blockio class: "pod" after it
// is for each container, and "container.NAME" for one.
//
// Source: pkg/blockio/kubernetes.go of github.com/intel/goresctrl.
const blockioPrefix = "blockio.resources.beta.kubernetes.io/"

// IsBlockio reports whether the key of an annotation chooses a blockio class of the runtimes.
func IsBlockio(key string) bool {
	_, is := blockioScope(key)
	return is
}

// blockioScope returns the name of the scope that a key of the runtimes has here. The runtimes ignore other keys
// with their prefix.
func blockioScope(key string) (scope string, is bool) {
	name, is := strings.CutPrefix(key, blockioPrefix)
	if !is {
		return "", false
	}
	if name == "pod" {
		return "containers", true
	}
	container, is := strings.CutPrefix(name, "container.")
	return name, is && IsLabel(container)
}

// Requests reports whether an annotation is the plugin's, or chooses a blockio class. The latter counts only under a
// policy with classes.
func Requests(annotations map[string]string) bool {
	for key := range annotations {
		if IsKey(key) {
			return true
		}
	}
	return false
}

// parseBlockio parses the choices of blockio classes of a pod that has no annotation of the plugin.
func (r *Request) parseBlockio(keys []string, annotations map[string]string) *Request {
	if len(keys) == 0 {
		return r
	}
	r.keys, r.isBlockio = keys, true
	if len(keys) > maxKeys {
		return r.tooMuch(keys[0], "more than "+strconv.Itoa(maxKeys)+" annotations of blockio classes on one pod", "write "+blockioPrefix+"pod once")
	}
	for _, key := range keys {
		name, _ := blockioScope(key)
		scope, _ := r.scope(name) // the key is valid
		value := annotations[key]
		if len(value) > maxValue || value == "" {
			scope.parseClass(key, value) // for the error
			continue
		}
		scope.Class = &Class{Key: key, Name: BlockioClass(value), text: value}
		r.chooses = true
	}
	return r
}

// IsBlockio reports whether the pod has no annotation of the plugin, and has some that choose blockio classes.
func (r *Request) IsBlockio() bool { return r != nil && r.isBlockio }

// IgnoredBlockio returns the first annotation that chooses a blockio class and has no effect, because the pod also
// has annotations of the plugin. It is "" if there is none.
func (r *Request) IgnoredBlockio() string {
	if r == nil {
		return ""
	}
	return r.ignored
}

// blockioKeys returns the keys that choose blockio classes, sorted.
func blockioKeys(annotations map[string]string) (keys []string) {
	for key := range annotations {
		if IsBlockio(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// maxBlockioName is the length of a name that is made from that of a blockio class, with room for a number.
const maxBlockioName = 60

var notInLabel = regexp.MustCompile(`[^a-z0-9]+`) // constant

// BlockioClass returns the name in the node policy of a blockio class of containerd or CRI-O. That is its own name
// if the policy can have it. Otherwise letters are small, and - replaces other characters: LowPrio is lowprio. Two
// classes can have one name in the policy.
func BlockioClass(name string) string {
	label := strings.ToLower(name)
	if !IsLabel(label) {
		label = strings.Trim(notInLabel.ReplaceAllString(label, "-"), "-")
		label = strings.Trim(label[:min(len(label), maxBlockioName)], "-")
	}
	switch label {
	case "":
		return "class"
	case NoClass:
		return NoClass + "-2"
	}
	return label
}
