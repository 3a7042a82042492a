package blkio

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestDev(t *testing.T) {
	for s, want := range map[string]Dev{
		"8:16": {8, 16}, "259:1048575": {259, 1048575}, "0:0": {}, "4294967295:4294967295": {1<<32 - 1, 1<<32 - 1},
	} {
		got, err := ParseDev(s)
		if err != nil || got != want || got.String() != s {
			t.Errorf("ParseDev(%q) is %v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"":             `parse device number "": not MAJ:MIN`,
		"8":            `parse device number "8": not MAJ:MIN`,
		"8:":           `parse device number "8:": strconv.ParseUint: parsing "": invalid syntax`,
		"x:1":          `parse device number "x:1": strconv.ParseUint: parsing "x": invalid syntax`,
		"8:1:2":        `parse device number "8:1:2": strconv.ParseUint: parsing "1:2": invalid syntax`,
		"8:-1":         `parse device number "8:-1": strconv.ParseUint: parsing "-1": invalid syntax`,
		"8:4294967296": `parse device number "8:4294967296": strconv.ParseUint: parsing "4294967296": value out of range`,
	} {
		_, err := ParseDev(s)
		checkError(t, err, want)
	}
	// Minor numbers above 255 are not a byte of the number.
	if got, want := DevOf(unix.Mkdev(259, 70000)), (Dev{259, 70000}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if (Dev{8, 1}).Compare(Dev{8, 2}) >= 0 || (Dev{9, 0}).Compare(Dev{8, 2}) <= 0 || (Dev{8, 2}).Compare(Dev{8, 2}) != 0 {
		t.Error("Compare is wrong")
	}
}

func TestLimitsString(t *testing.T) {
	for want, l := range map[string]Limits{
		"":                              {},
		"wbps=1048576":                  {Wbps: 1 << 20},
		"rbps=max wiops=2":              {Rbps: Max, Wiops: 2},
		"rbps=1 wbps=2 riops=3 wiops=4": {1, 2, 3, 4},
	} {
		if got := l.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if l.IsZero() != (want == "") {
			t.Errorf("%q: IsZero is %t", want, l.IsZero())
		}
	}
	if got, want := (DevLimits{Dev{8, 16}, Limits{Wbps: 10 << 20}}).String(), "8:16 wbps=10485760"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
