package record

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSourceOutOfRange verifies that a source, or its name, that the record does not have is an error, for any
// number.
func TestSourceOutOfRange(t *testing.T) {
	for _, number := range []string{"-1", "1", "2", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "0x0"} {
		for _, text := range []string{
			fmt.Sprintf(`{"v":2,"names":["a"],"sources":[{"k":"annotation","n":%s}],"settings":["0 io.max wbps=7 254:0"]}`, number),
			fmt.Sprintf(`{"v":2,"names":["a"],"sources":[{"k":"annotation","n":0}],"settings":["%s io.max wbps=7 254:0"]}`, number),
		} {
			if r, err := Parse([]byte(text)); !errors.Is(err, ErrParse) {
				t.Errorf("%s is %+v, %v", text, r, err)
			}
		}
	}
}

// TestWithExitsAgain verifies that a container that is noted again, such as after its limits were lifted, has
// one entry, the newer one. The lists that were given stay.
func TestWithExitsAgain(t *testing.T) {
	exit := func(name string, at int64, ids ...uint64) Exit {
		return Exit{Container: name, CgroupIDs: ids, At: time.Unix(at, 0)}
	}
	before := []Exit{exit("a", 1, 1, 2), exit("b", 1, 3), exit("c", 1, 1)}
	after := []Exit{exit("b", 2, 3), exit("a", 2, 2, 1)}
	given := slices.Clone(before)
	want := []Exit{exit("a", 1, 1, 2), exit("c", 1, 1), exit("b", 2, 3), exit("a", 2, 2, 1)}
	if d := cmp.Diff(want, WithExits(before, after)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff(given, before); d != "" {
		t.Errorf("the list before, -want +got:\n%s", d)
	}
}
