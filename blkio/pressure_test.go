package blkio

import (
	"testing"
	"time"
)

func TestParsePressure(t *testing.T) {
	const text = "some avg10=0.00 avg60=1.83 avg300=0.90 total=2765132\nfull avg10=0.00 avg60=1.79 avg300=0.89 total=2699120\n"
	got, err := ParsePressure(text)
	if want := (Pressure{Some: 2765132 * time.Microsecond, Full: 2699120 * time.Microsecond}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "some total=1\n", "some total=-1\nfull total=1\n", "some total=9223372036854775807\nfull total=1\n", "some avg10=0.00\nfull total=1\n"} {
		if got, err := ParsePressure(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func FuzzParsePressure(f *testing.F) {
	f.Add("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParsePressure(text)
		if err != nil {
			return
		}
		if again, err := ParsePressure(got.String()); err != nil || again != got {
			t.Errorf("%+v becomes %+v, %v", got, again, err)
		}
	})
}
