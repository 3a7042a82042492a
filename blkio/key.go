package blkio

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Key is one value that the kernel keeps for a cgroup, or for a cgroup and a device.
type Key uint8

// The keys. Those of io.max come first, in the kernel's order: Rbps and Wbps are bytes per
// second, Riops and Wiops operations per second. Weight is the weight of a cgroup on all
// devices on which it has no DiskWeight. MemoryHigh is in bytes.
const (
	Rbps Key = iota
	Wbps
	Riops
	Wiops
	Weight
	DiskWeight
	MemoryHigh
	numKeys
)

// NumLimits is the number of keys of io.max.
const NumLimits = Wiops + 1

// The control files that have keys.
const (
	IOMax          = "io.max"
	IOWeight       = "io.weight"
	IOBFQWeight    = "io.bfq.weight" // while the module bfq is loaded
	memoryHighFile = "memory.high"
)

type unit uint8

const (
	unitCount unit = iota
	unitBytes
	unitShare
)

// keyInfo describes a key. A new key is one line of the table.
type keyInfo struct {
	file, name string
	unit       unit
	hasDev     bool   // the file has a line for each device
	isRead     bool   // it limits reads
	isWrite    bool   // it limits writes
	absent     Amount // the kernel's value without a setting; writing it removes a setting
	most       Amount // the largest that can be requested, other than Max
}

// A Kubernetes quantity holds less than 8Ei, and ParseQuantity cuts a larger one down to that silently. The
// kernel's own bound is twice that. The kernel keeps operations in 32 bits, and reads the largest value back as
// max.
//
// Sources: Documentation/admin-guide/cgroup-v2.rst; tg_set_limit in block/blk-throttle.c; CGROUP_WEIGHT_DFL and
// CGROUP_WEIGHT_MAX in include/linux/cgroup.h.
const (
	maxBytes = math.MaxInt64 - 1
	maxOps   = math.MaxUint32 - 1
)

var keys = [numKeys]keyInfo{ // constant
	Rbps:   {file: IOMax, name: "rbps", unit: unitBytes, hasDev: true, isRead: true, absent: Max, most: maxBytes},
	Wbps:   {file: IOMax, name: "wbps", unit: unitBytes, hasDev: true, isWrite: true, absent: Max, most: maxBytes},
	Riops:  {file: IOMax, name: "riops", unit: unitCount, hasDev: true, isRead: true, absent: Max, most: maxOps},
	Wiops:  {file: IOMax, name: "wiops", unit: unitCount, hasDev: true, isWrite: true, absent: Max, most: maxOps},
	Weight: {file: IOWeight, name: "default", unit: unitShare, absent: DefaultWeight, most: MaxWeight},
	// A line of io.weight has no name for it, only the device. Where there is no such line
	// Weight counts.
	DiskWeight: {file: IOWeight, name: "weight", unit: unitShare, hasDev: true, absent: Unset, most: MaxWeight},
	MemoryHigh: {file: memoryHighFile, unit: unitBytes, absent: Max, most: maxBytes},
}

// String returns the kernel's name of the key, or "" if its file has a single value.
func (k Key) String() string { return keys[k].name }

// File returns the name of the control file that the key is in.
func (k Key) File() string { return keys[k].file }

// Most returns the largest amount that can be requested, other than Max.
func (k Key) Most() Amount { return keys[k].most }

// IsBytes reports whether amounts of the key are bytes or bytes per second.
func (k Key) IsBytes() bool { return keys[k].unit == unitBytes }

// IsShare reports whether the key is a weight. Of two weights neither is the stricter one.
func (k Key) IsShare() bool { return keys[k].unit == unitShare }

// IsRead reports whether the key limits reads.
func (k Key) IsRead() bool { return keys[k].isRead }

// HasDev reports whether the file has a line for each device.
func (k Key) HasDev() bool { return keys[k].hasDev }

// IsRate reports whether the key limits the I/O on one device.
func (k Key) IsRate() bool { return k.HasDev() && !k.IsShare() }

// ParseKey returns the key with the kernel's name s in a file.
func ParseKey(file, s string) (Key, bool) {
	for k := range numKeys {
		if keys[k].name == s && keys[k].file == file {
			return k, true
		}
	}
	return 0, false
}

// Amount is the value of a key, in the unit of the key, or Unset, or Max.
type Amount uint64

const (
	// Unset leaves the kernel's value as it is. The kernel accepts no 0: the smallest limit
	// is 2 (tg_set_limit in block/blk-throttle.c), and the smallest weight is 1.
	Unset Amount = 0
	// Max is the kernel's "max": no limit.
	Max Amount = math.MaxUint64
)

// String formats the amount in plain decimals, or as "max". The kernel ignores a suffix,
// and would take 10M for 10 bytes per second.
func (a Amount) String() string {
	if a == Max {
		return "max"
	}
	return strconv.FormatUint(uint64(a), 10)
}

// ParseAmount is the inverse of String. It returns an error for 0.
func ParseAmount(s string) (Amount, error) {
	if s == "max" {
		return Max, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("%q is no amount", s)
	}
	return Amount(n), nil
}

// Address identifies a value of a cgroup: by its key and, if the control file has a line
// for each device, by the device. Otherwise Dev is zero.
type Address struct {
	Key Key
	Dev Dev
}

// File returns the name of the control file.
func (a Address) File() string { return a.Key.File() }

// Compare orders addresses by file, device and key, so that the values of one line are
// adjacent.
func (a Address) Compare(b Address) int {
	if a.File() != b.File() {
		return cmp.Compare(a.Key, b.Key)
	}
	return cmp.Or(a.Dev.Compare(b.Dev), cmp.Compare(a.Key, b.Key))
}

// Value is an amount at its address.
type Value struct {
	Address
	Amount Amount
}

// IsLimit reports whether the value differs from the kernel's value without a setting.
func (v Value) IsLimit() bool { return v.Amount != keys[v.Key].absent }

// LimitsWrites reports whether the value limits the writes of a cgroup to a disk.
func (v Value) LimitsWrites() bool { return keys[v.Key].isWrite && v.IsLimit() }

// Removal returns the value that removes v.
func (v Value) Removal() Value { return Value{v.Address, keys[v.Key].absent} }

// Replacement replaces the value From of an address by To. Another value stays.
type Replacement struct {
	Address
	From, To Amount
}

// Values has the values in the kernel. An address that is missing has no setting.
type Values map[Address]Amount

// At returns the value of an address, which without a setting is the kernel's default.
func (vs Values) At(a Address) Value {
	if amount, ok := vs[a]; ok {
		return Value{a, amount}
	}
	return Value{Address: a}.Removal()
}

// Sorted returns the values in the order of their addresses.
func (vs Values) Sorted() []Value {
	out := make([]Value, 0, len(vs))
	for at, amount := range vs {
		out = append(out, Value{at, amount})
	}
	slices.SortFunc(out, func(a, b Value) int { return a.Compare(b.Address) })
	return out
}

// ParseValues parses the text of io.max or io.weight.
func ParseValues(file, data string) (Values, error) {
	out := Values{}
	switch file {
	case IOMax:
		limits, err := ParseIOMax(data)
		if err != nil {
			return nil, err
		}
		for dev, l := range limits {
			for k, amount := range l {
				out[Address{Key(k), dev}] = amount
			}
		}
	case IOWeight:
		weights, err := ParseIOWeight(data)
		if err != nil {
			return nil, err
		}
		out[Address{Key: Weight}] = Amount(weights.Default)
		for dev, weight := range weights.Devices {
			out[Address{DiskWeight, dev}] = Amount(weight)
		}
	default:
		return nil, fmt.Errorf("parse %s: no known keys", file)
	}
	return out, nil
}

// Line is one write to a control file: all values of one device, or of a file without
// devices.
type Line struct {
	File, Text string
	Dev        Dev // zero where the file has no devices
}

// String formats the line with its file, "io.max 8:16 wbps=1048576".
func (l Line) String() string { return l.File + " " + l.Text }

// Lines returns the writes that set the given values, which must be sorted by address. Each write sets one
// device, as the kernel requires. The kernel applies all values of a write or none.
func Lines(values []Value) []Line {
	var out []Line
	for len(values) > 0 {
		n := 1
		for n < len(values) && values[n].File() == values[0].File() && values[n].Dev == values[0].Dev {
			n++
		}
		out = append(out, lineOf(values[:n]))
		values = values[n:]
	}
	return out
}

func lineOf(values []Value) Line {
	info := keys[values[0].Key]
	var words []string
	if info.hasDev {
		words = append(words, values[0].Dev.String())
	}
	for _, v := range values {
		switch name := v.Key.String(); {
		case v.Key == DiskWeight && v.Amount == Unset:
			words = append(words, "default")
		case v.Key == DiskWeight:
			words = append(words, v.Amount.String())
		case info.hasDev:
			words = append(words, name+"="+v.Amount.String())
		case name == "":
			words = append(words, v.Amount.String())
		default:
			words = append(words, name+" "+v.Amount.String())
		}
	}
	return Line{File: info.file, Text: strings.Join(words, " "), Dev: values[0].Dev}
}
