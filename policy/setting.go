package policy

import (
	"slices"
	"strconv"

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
