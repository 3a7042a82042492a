package record

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseError(t *testing.T) {
	for _, in := range []string{"", "{", "null", "[]", `{"v":0}`, `{"v":1}`, `{"v":99}`, `{"v":2,"disks":7}`} {
		if r, err := Parse([]byte(in)); err == nil {
			t.Errorf("%q is %+v, want an error", in, r)
		}
	}
}

// FuzzParse verifies that a record that can be parsed is written as an equal one.
func FuzzParse(f *testing.F) {
	f.Add([]byte(marshal(f, example())))
	f.Add([]byte(`{"v":2,"kind":"container","observed":true,"cleared":true,"dropped":["- io.weight default=50"],"exits":[{"container":"a","cgroupIDs":[7],"limits":["- io.max wbps=7 254:0"]}]}`))
	f.Add([]byte(marshal(f, large(3, "*"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		text, err := r.Marshal(MaxSize)
		if errors.Is(err, ErrTooLarge) {
			return
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(withoutTargets(r.Settings), withoutTargets(again.Settings)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if stable, err := again.Marshal(MaxSize); err != nil || string(stable) != string(text) {
			t.Errorf("%s, then %s, %v", text, stable, err)
		}
	})
}
