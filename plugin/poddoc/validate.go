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

// omitted validates what is left out of a document or of a volume.
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
