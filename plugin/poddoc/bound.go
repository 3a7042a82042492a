package poddoc

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
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
	slices.SortFunc(d.Volumes, func(a, b policy.Volume) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range d.parts() {
		if cause := p.tooLarge(); cause != "" {
			d.Omit(p.name, cause)
		}
	}
}

// part is a part of a document, with its bounds.
type part struct {
	name    string
	isThere bool
	value   any
	// n and most are numbers of entries, and limit is in bytes as encoded.
	n, most, limit int
}

// parts returns the parts of a document that can be omitted.
func (d *Document) parts() []part {
	return []part{
		{podfacts.PartAnnotations, d.Annotations != nil, d.Annotations, len(d.Annotations), podfacts.MaxAnnotations, podfacts.MaxAnnotationBytes},
		{podfacts.PartLabels, d.Labels != nil, d.Labels, 0, 0, MaxLabelBytes},
		{podfacts.PartNamespaceLabels, d.NamespaceLabels != nil, d.NamespaceLabels, 0, 0, MaxLabelBytes},
		{podfacts.PartVolumes, d.Volumes != nil, d.Volumes, len(d.Volumes), MaxVolumes, maxVolumeBytes},
	}
}

// tooLarge returns why a part is omitted, or "".
func (p *part) tooLarge() string {
	if p.n > p.most {
		return fmt.Sprintf("%d of them (maximum %d)", p.n, p.most)
	}
	data, err := mailbox.JSON(p.value)
	if err != nil { // not reached: maps and strings only
		return err.Error()
	}
	if len(data) <= p.limit {
		return ""
	}
	return fmt.Sprintf("%d bytes (maximum %d)", len(data), p.limit)
}

func boundVolume(v *policy.Volume) {
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
		c.Rates = boundRates(v, PartParameters, c.Rates)
	}
	if a := v.Attachment; a != nil {
		a.Rates = boundRates(v, PartMetadata, a.Rates)
	}
}

// boundRates returns the rates, and omits them if one is too long.
func boundRates(v *policy.Volume, part string, rates map[string]string) map[string]string {
	for _, value := range rates {
		if len(validText(value)) > MaxRate {
			v.Omitted = with(v.Omitted, part, fmt.Sprintf("a rate of more than %d bytes", MaxRate))
			return nil
		}
	}
	return valid(rates)
}

// with returns a map with one more key.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// valid returns a map with UTF-8 only. The API server accepts no keys of other characters.
func valid(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := map[string]string{}
	for key, value := range m {
		if isText(key) {
			out[key] = validText(value)
		}
	}
	return out
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
