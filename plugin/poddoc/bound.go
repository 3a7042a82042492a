package poddoc

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Bound makes a document one that can be encoded, if its UID and its names are valid: it sorts, and
// omits the parts that are too large, so that no part can displace another one.
func (d *Document) Bound() {
	d.Version = Version
	d.Annotations, d.Labels, d.NamespaceLabels = valid(d.Annotations), valid(d.Labels), valid(d.NamespaceLabels)
	for i := range d.Volumes {
		boundVolume(&d.Volumes[i])
	}
	slices.SortFunc(d.Volumes, func(a, b policy.ClaimVolume) int { return strings.Compare(a.Name, b.Name) })
	d.omit(PartAnnotations, tooMany(len(d.Annotations), MaxAnnotations), d.Annotations, maxAnnotationBytes)
	d.omit(PartLabels, "", d.Labels, maxLabelBytes)
	d.omit(PartNamespaceLabels, "", d.NamespaceLabels, maxLabelBytes)
	d.omit(PartVolumes, tooMany(len(d.Volumes), MaxVolumes), d.Volumes, maxVolumeBytes)
}

// omit leaves a part out for a cause, or if its text is too large.
func (d *Document) omit(part, cause string, value any, limit int) {
	if cause == "" {
		cause = tooLarge(value, limit)
	}
	if cause == "" {
		return
	}
	switch part {
	case PartAnnotations:
		d.Annotations = nil
	case PartLabels:
		d.Labels = nil
	case PartNamespaceLabels:
		d.NamespaceLabels = nil
	case PartVolumes:
		d.Volumes = nil
	}
	d.Omitted = with(d.Omitted, part, cause)
}

// KeptLabels returns labels that a document can have. Of others it returns so many that it is known that they are too large.
func KeptLabels(labels map[string]string) map[string]string {
	size := 0
	for key, value := range labels {
		size += len(key) + len(value)
	}
	if size <= maxLabelBytes {
		return labels
	}
	out := map[string]string{}
	size = 0
	for _, key := range slices.Sorted(maps.Keys(labels)) { // the same ones each time
		if size > maxLabelBytes {
			break
		}
		out[key] = labels[key]
		size += len(key) + len(labels[key])
	}
	return out
}

// FitsAnnotations reports whether a document can have these annotations of a pod.
func FitsAnnotations(annotations map[string]string) bool {
	return len(annotations) <= MaxAnnotations && tooLarge(annotations, maxAnnotationBytes) == ""
}

// tooLarge returns why a part is omitted, or "".
func tooLarge(value any, limit int) string {
	data, err := mailbox.JSON(value)
	if err != nil { // not reached: maps and strings only
		return err.Error()
	}
	if len(data) <= limit {
		return ""
	}
	return fmt.Sprintf("%d bytes (maximum %d)", len(data), limit)
}

func tooMany(n, limit int) string {
	if n <= limit {
		return ""
	}
	return fmt.Sprintf("%d of them (maximum %d)", n, limit)
}

func boundVolume(v *policy.ClaimVolume) {
	for i := range v.Places {
		v.Places[i].Path = path.Clean("/" + v.Places[i].Path) // as the kubelet does
	}
	v.Places = slices.DeleteFunc(v.Places, func(p policy.Place) bool { return !isPlace(p) }) // no container can have it
	slices.SortFunc(v.Places, policy.Place.Compare)
	v.Places = slices.Compact(v.Places)
	if v.Limits != nil {
		text := validText(*v.Limits)
		v.Limits = &text
		if len(text) > MaxText {
			v.Limits = nil
			v.Omitted = with(v.Omitted, PartLimits, fmt.Sprintf("more than %d bytes", MaxText))
		}
	}
	if c := v.Class; c != nil {
		c.Rates = valid(c.Rates)
		for _, value := range c.Rates {
			if len(value) > MaxRate {
				c.Rates = nil
				v.Omitted = with(v.Omitted, PartParameters, fmt.Sprintf("a rate of more than %d bytes", MaxRate))
			}
		}
	}
}

// with returns a map with one more key.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// valid returns a map with UTF-8 only, and nil for an empty one. The API server accepts no keys of
// other characters.
func valid(m map[string]string) map[string]string {
	var out map[string]string
	for key, value := range m {
		if isText(key) {
			out = with(out, key, validText(value))
		}
	}
	return out
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
