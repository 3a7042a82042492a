package poddoc

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Sizes of names in Kubernetes, in bytes.
const (
	maxLabel = 63  // of namespaces, volumes and containers; the value of a label
	maxName  = 253 // of pods, claims, PersistentVolumes and classes
	maxKey   = 317 // of annotations and labels: a prefix, "/" and 63 bytes
	maxPath  = 4096
	maxCause = 128
)

// subdomain matches the names of most objects (RFC 1123).
var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// IsName reports whether s has the form of the name of a pod, a claim or a class.
func IsName(s string) bool { return len(s) <= maxName && subdomain.MatchString(s) }

func (d *Document) validate() error {
	switch {
	case d.Version != Version:
		return fmt.Errorf("%w %d", mailbox.ErrVersion, d.Version)
	case !mailbox.IsUID(d.UID):
		return invalid("uid", d.UID)
	case !annotation.IsLabel(d.Namespace):
		return invalid("namespace", d.Namespace)
	case !IsName(d.Name):
		return invalid("name", d.Name)
	case d.Owner != podfacts.Owner{} && (!IsName(d.Owner.Name) || !mailbox.IsUID(d.Owner.UID)):
		return invalid("owner", d.Owner.Name)
	}
	if err := d.validateParts(); err != nil {
		return err
	}
	for key, value := range d.Annotations {
		if len(key) > maxKey || !annotation.IsKey(key) || !isText(key) || !isText(value) {
			return invalid("annotations", key)
		}
	}
	if err := errors.Join(validateLabels("labels", d.Labels), validateLabels("namespaceLabels", d.NamespaceLabels)); err != nil {
		return err
	}
	return d.validateVolumes()
}

// validateParts validates the sizes of the parts, for which the reader reserves room: [Document.Bound] keeps to them.
func (d *Document) validateParts() error {
	var names []string
	for _, p := range d.parts() {
		if cause := p.tooLarge(); cause != "" {
			return fmt.Errorf("%s: %s", p.name, cause)
		}
		if p.isThere && d.Omitted[p.name] != "" {
			return errOmitted
		}
		names = append(names, p.name)
	}
	return omitted(d.Omitted, names...)
}

// errOmitted is the error of a part that is there and omitted.
var errOmitted = errors.New("omitted: a part that is there")

func validateLabels(field string, of map[string]string) error {
	for key, value := range of {
		if key == "" || len(key) > maxKey || len(value) > maxLabel || !isText(key) || !isText(value) {
			return invalid(field, key)
		}
	}
	return nil
}

func (d *Document) validateVolumes() error {
	for i := range d.Volumes {
		v := &d.Volumes[i]
		if i > 0 && v.Name <= d.Volumes[i-1].Name {
			return fmt.Errorf("volumes: %s is not in order", quote.Text(v.Name))
		}
		if err := validateVolume(v); err != nil {
			return fmt.Errorf("volumes: %d: %w", i, err)
		}
	}
	return nil
}

func validateVolume(v *policy.Volume) error {
	switch {
	case !annotation.IsLabel(v.Name):
		return invalid("name", v.Name)
	case v.Claim == "" && (v.Limits != nil || v.Size != 0 || v.Class != nil || v.Attachment != nil || len(v.Omitted) > 0), v.Claim != "" && !IsName(v.Claim):
		return invalid("claim", v.Claim)
	case v.Limits != nil && (len(*v.Limits) > MaxText || !isText(*v.Limits)):
		return invalid("limits", *v.Limits)
	case v.Size < 0:
		return invalid("size", strconv.FormatInt(v.Size, 10))
	case v.Limits != nil && v.Omitted[PartLimits] != "":
		return errOmitted
	}
	for i, p := range v.Places {
		if !isPlace(p) || i > 0 && p.Compare(v.Places[i-1]) <= 0 {
			return invalid("places", p.Path)
		}
	}
	return errors.Join(validateClass(v.Class), validateAttachment(v.Attachment), omitted(v.Omitted, PartLimits, PartParameters, PartMetadata))
}

// isPlace reports whether a container can have a volume at a place.
func isPlace(p policy.Place) bool {
	return annotation.IsLabel(p.Container) && len(p.Path) <= maxPath && path.IsAbs(p.Path) && path.Clean(p.Path) == p.Path && isText(p.Path)
}

func validateClass(c *policy.ClaimClass) error {
	switch {
	case c == nil:
		return nil
	case !IsName(c.Name):
		return invalid("class.name", c.Name)
	}
	return validateRates("class.rates", c.Rates, annotation.Parameters())
}

// IsDriver reports whether s has the form of the name of a storage driver.
func IsDriver(s string) bool { return len(s) <= maxLabel && IsName(strings.ToLower(s)) }

func validateAttachment(a *policy.ClaimAttachment) error {
	switch {
	case a == nil:
		return nil
	case !IsDriver(a.Driver):
		return invalid("attachment.driver", a.Driver)
	}
	return validateRates("attachment.rates", a.Rates, annotation.DriverKeys())
}

func validateRates(field string, rates map[string]string, keys []string) error {
	for key, value := range rates {
		if !slices.Contains(keys, key) || len(value) > MaxRate || !isText(value) {
			return invalid(field, key)
		}
	}
	return nil
}

func omitted(parts map[string]string, known ...string) error {
	for part, cause := range parts {
		if !slices.Contains(known, part) || cause == "" || len(cause) > maxCause || !isText(cause) {
			return invalid("omitted", part)
		}
	}
	return nil
}

// isText reports whether JSON keeps a text as it is.
func isText(s string) bool { return utf8.ValidString(s) }

func invalid(field, text string) error {
	return fmt.Errorf("%s: invalid value %s", field, quote.Text(text))
}

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
