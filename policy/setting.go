package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Setting is one value for a cgroup, with its source and the reason why it counts. A list of them is what a cgroup is granted.
type Setting struct {
	blkio.Value
	Source Source
	Basis  Basis
	Burst  blkio.Burst // of a limit; a record does not have it
}

// OnDisk formats a setting of io.max for messages: "wbps=20Mi on disk sda 8:0".
func (s Setting) OnDisk(names map[blkio.Dev]string) string {
	disk := "disk " + s.Dev.String()
	if name := names[s.Dev]; name != "" {
		disk = blkio.Disk{Dev: s.Dev, Name: name}.String()
	}
	return s.Key.String() + "=" + annotation.FormatAmount(s.Key, s.Amount) + " on " + disk
}

// Settings is a list sorted by address, with each address once. It must not be changed, because plans, records
// and differences share it.
type Settings []Setting

// NewSettings returns the settings of a list. Of several with one address it keeps the
// first.
func NewSettings(list ...Setting) Settings {
	slices.SortStableFunc(list, func(a, b Setting) int { return a.Compare(b.Address) })
	return slices.CompactFunc(list, func(a, b Setting) bool { return a.Address == b.Address })
}

// Get returns the setting with an address.
func (s Settings) Get(at blkio.Address) (Setting, bool) {
	i, found := slices.BinarySearchFunc(s, at, func(a Setting, at blkio.Address) int { return a.Compare(at) })
	if !found {
		return Setting{}, false
	}
	return s[i], true
}

// Weight returns the setting of io.weight.
func (s Settings) Weight() (Setting, bool) { return s.Get(blkio.Address{Key: blkio.Weight}) }

// Where returns the settings for which keep is true. These are s itself if all are kept: the plans of
// a node keep thousands of lists, and most of the lists that Where returns are whole.
func (s Settings) Where(keep func(Setting) bool) Settings {
	if !slices.ContainsFunc(s, func(x Setting) bool { return !keep(x) }) {
		return slices.Clip(s) // so that nobody appends to it in place
	}
	var out Settings
	for _, x := range s {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// as returns the settings with a basis in place of that of some. They are s itself if it has none of these.
func (s Settings) as(basis Basis, some func(Setting) bool) Settings {
	if !slices.ContainsFunc(s, some) {
		return slices.Clip(s)
	}
	out := slices.Clone(s)
	for i := range out {
		if some(out[i]) {
			out[i].Basis = basis
		}
	}
	return out
}

// stand returns the settings as those that stand. What is carried stays carried.
func (s Settings) stand() Settings {
	return s.as(Standing, func(x Setting) bool { return !x.isCarried() })
}

// WithoutCarried returns the settings that are not carried.
func (s Settings) WithoutCarried() Settings {
	return s.Where(func(x Setting) bool { return !x.isCarried() })
}

// Uncarried returns the settings with those that are carried as ones that stand.
func (s Settings) Uncarried() Settings { return s.as(Standing, Setting.isCarried) }

// Carry returns the settings as those that are carried.
func (s Settings) Carry() Settings { return s.as(Carried, func(Setting) bool { return true }) }

// In returns the settings in one control file.
func (s Settings) In(file string) Settings {
	return s.Where(func(x Setting) bool { return x.File() == file })
}

// WriteLimits returns the settings that limit writes to a disk.
func (s Settings) WriteLimits() Settings {
	return s.Where(func(x Setting) bool { return x.LimitsWrites() })
}

// LimitWrites reports whether writes to a disk are limited.
func (s Settings) LimitWrites() bool {
	return slices.ContainsFunc(s, func(x Setting) bool { return x.LimitsWrites() })
}

// LimitWritesTo reports whether writes to one of these disks are limited.
func (s Settings) LimitWritesTo(disks []blkio.Dev) bool {
	return slices.ContainsFunc(s, func(x Setting) bool { return x.LimitsWrites() && slices.Contains(disks, x.Dev) })
}

// Removals returns the settings that remove each setting of s.
func (s Settings) Removals() Settings {
	out := slices.Clone(s)
	for i := range out {
		out[i].Value = out[i].Removal()
	}
	return out
}

// Without returns the settings of s whose addresses are not in o.
func (s Settings) Without(o Settings) Settings {
	return s.Where(func(x Setting) bool {
		_, found := o.Get(x.Address)
		return !found
	})
}

// Join returns the settings of s, and those of o whose addresses are not in s.
func (s Settings) Join(o Settings) Settings {
	switch {
	case len(o) == 0:
		return slices.Clip(s)
	case len(s) == 0:
		return slices.Clip(o)
	}
	return NewSettings(slices.Concat(s, o)...)
}

// Lowest returns the settings of both. If both have an address, it keeps the setting with
// the lower value, or that of s if the values are equal.
func (s Settings) Lowest(o Settings) Settings {
	out := slices.Clone(s.Join(o))
	for i, x := range out {
		if y, found := o.Get(x.Address); found && y.Amount < x.Amount {
			out[i] = y
		}
	}
	return out
}

// DiskNames returns the names of the disks in s, each from the last of the maps that has
// it.
func DiskNames(s Settings, in ...map[blkio.Dev]string) map[blkio.Dev]string {
	out := map[blkio.Dev]string{}
	for _, x := range s {
		for _, names := range in {
			if name, found := names[x.Dev]; found {
				out[x.Dev] = name
			}
		}
	}
	return out
}

// DevLimits returns the settings in io.max, by device.
func (s Settings) DevLimits() map[blkio.Dev]blkio.Limits {
	out := map[blkio.Dev]blkio.Limits{}
	for _, x := range s {
		if x.Key < blkio.NumLimits {
			limits := out[x.Dev]
			limits[x.Key] = x.Amount
			out[x.Dev] = limits
		}
	}
	return out
}

// IOWeight returns the settings in io.weight. Default is 0 if none of them applies to all disks.
func (s Settings) IOWeight() blkio.Weights {
	var out blkio.Weights
	for _, x := range s {
		switch x.Key {
		case blkio.Weight:
			out.Default = uint32(x.Amount)
		case blkio.DiskWeight:
			if out.Devices == nil {
				out.Devices = map[blkio.Dev]uint32{}
			}
			out.Devices[x.Dev] = uint32(x.Amount)
		}
	}
	return out
}

// Lines returns the writes that put the settings into force.
func (s Settings) Lines() []blkio.Line {
	values := make([]blkio.Value, len(s))
	for i, x := range s {
		values[i] = x.Value
	}
	return blkio.Lines(values)
}

// Diff returns the settings to write so that the actual values become the desired ones. It
// removes recorded settings that are not desired. A value that is neither desired nor
// recorded belongs to another program, and stays. The caller writes raise first and lower
// last, so that a cgroup is never limited to less than it was granted.
func Diff(want, recorded Settings, actual blkio.Values) (raise, lower Settings) {
	set := func(s Setting) {
		switch now := actual.At(s.Address).Amount; {
		case s.Amount == now:
		case s.Amount > now && !s.Key.IsShare():
			raise = append(raise, s)
		default:
			lower = append(lower, s)
		}
	}
	for _, s := range want {
		set(s)
	}
	for _, s := range recorded.Without(want).Removals() {
		set(s)
	}
	return NewSettings(raise...), NewSettings(lower...)
}

// Basis is the reason why a value counts.
type Basis uint8

// The bases.
const (
	Asked     Basis = iota // it is asked for: by an annotation, a claim, a class or a rule of the policy
	Standing               // it was granted before, and what asked for it is refused or unknown now
	Carried                // pod-total asks for it, and a container that has ended may have had its disk
	Room                   // a budget has no room for more
	LentLimit              // a claim of a pod that this one controls asks for it, see Lent
)

// bases are the names of the bases in records. Most values are asked for, so that has none.
var bases = [...]string{Asked: "", Standing: "standing", Carried: "carried", Room: "room", LentLimit: "lent"}

// String returns the name of the basis.
func (b Basis) String() string {
	if int(b) >= len(bases) {
		return strconv.Itoa(int(b))
	}
	return bases[b]
}

// ParseBasis is the inverse of String.
func ParseBasis(s string) (Basis, bool) {
	i := slices.Index(bases[:], s)
	return Basis(max(i, 0)), i >= 0
}

// SourceKind is the kind of a Source.
type SourceKind uint8

// The kinds of a Source. Their order is their precedence: the earlier one wins.
const (
	FromAnnotation SourceKind = iota + 1
	FromClaim
	FromDriver // the storage driver has written limits for a claim
	FromClass
	FromRule
	FromBackstop // the sum of the limits of the pod's containers
)

var sourceKinds = [...]string{
	FromAnnotation: "annotation", FromClaim: "claim", FromDriver: "driver", FromClass: "class", FromRule: "rule", FromBackstop: "backstop",
}

// String returns the name of the kind in records. It is "" for the zero value.
func (k SourceKind) String() string { return sourceKinds[k] }

// ParseSourceKind is the inverse of String.
func ParseSourceKind(s string) (SourceKind, bool) {
	i := slices.Index(sourceKinds[:], s)
	return SourceKind(max(i, 0)), i >= 0
}

// Source identifies where a value comes from, such as an annotation and its entry. Sources
// are comparable with ==.
type Source struct {
	Kind SourceKind
	// Name is the annotation's full key, or the name of the claim or class. Of a class that a rule
	// or a claim names it is RULE/CLASS or CLAIM/CLASS, of a storage driver CLAIM/DRIVER, and for a field of the policy its path.
	Name  string
	Entry int // 1-based, of an annotation; 0 for a value without entries, such as a weight
	// IsStar is true if the target is "*". Target is the target as the user wrote it, cut
	// to 64 bytes; only its kind is read.
	IsStar bool
	Target string
}

// namesVolume reports whether a value is of an entry that names a volume of the pod, which can be unknown.
func (s Source) namesVolume() bool { return strings.HasPrefix(s.Target, "@") }

// backstopText stands for the backstop where people expect the name of an annotation.
const backstopText = "backstop: the sum of the containers' limits"

// ruleName returns the Name of a class that a rule names.
func ruleName(rule, class string) string { return rule + "/" + class }

// claimName returns the Name of the limits of a claim, by its annotation or by a class or a storage driver.
func claimName(claim, by string) string {
	if by == "" {
		return claim
	}
	return claim + "/" + by
}

func (s Source) isOfClaim() bool { return s.Kind == FromClaim || s.Kind == FromDriver }

// Origin returns what has asked for the value. The source of a backstop has none.
func (s Source) Origin() annotation.Origin {
	first, class, ok := strings.Cut(s.Name, "/")
	switch {
	case s.Kind == FromAnnotation:
		return annotation.Origin{Annotation: s.Name}
	case s.Kind == FromClaim:
		return annotation.Origin{Claim: first, Class: class}
	case s.Kind == FromDriver:
		return annotation.Origin{Claim: first, Driver: class}
	case s.Kind == FromClass:
		return annotation.Origin{Class: s.Name}
	case s.Kind == FromRule && ok:
		return annotation.Origin{Rule: first, Class: class}
	}
	return annotation.Origin{Field: s.Name}
}

// Text returns the name of the origin, or a text for the backstop.
func (s Source) Text() string {
	if s.Kind == FromBackstop {
		return backstopText
	}
	return s.Origin().String()
}

// String returns Text without the domain, and the number of the entry: "limits/container.db
// #1".
func (s Source) String() string {
	text := strings.Replace(s.Text(), "."+annotation.Domain+"/", "/", 1)
	if s.Entry > 0 {
		text += fmt.Sprintf(" #%d", s.Entry)
	}
	return text
}

// MarshalJSON encodes the source for reports, without its kind.
func (s Source) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Annotation string `json:"annotation"`
		Entry      int    `json:"entry"`
		Target     string `json:"target"`
	}{s.Text(), s.Entry, s.Target})
}
