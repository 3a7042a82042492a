package calibrate

import (
	"os"
	"testing"
	"testing/fstest"
)

func TestReadProcessorTime(t *testing.T) {
	for name, tt := range map[string]struct {
		tasks fstest.MapFS
		want  int64
	}{
		"two threads":   {fstest.MapFS{"1/schedstat": {Data: []byte("100 20 3\n")}, "2/schedstat": {Data: []byte("5 1 1\n")}}, 126},
		"not counted":   {fstest.MapFS{"1/stat": {Data: []byte("1")}}, 0},
		"not a number":  {fstest.MapFS{"1/schedstat": {Data: []byte("x 1 1\n")}}, 0},
		"one is absent": {fstest.MapFS{"1/schedstat": {Data: []byte("100 20 3\n")}, "2/schedstat": {Mode: os.ModeDir}}, 120},
	} {
		if got := readProcessorTime(tt.tasks); int64(got) != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if before, after := processorTime(), processorTime(); after < before {
		t.Errorf("%v, then %v", before, after)
	}
}
