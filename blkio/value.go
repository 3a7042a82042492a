package blkio

import (
	"fmt"
	"slices"
	"strings"
)

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
