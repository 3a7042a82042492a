package diskmodel

import "testing"

// rates returns the points of a disk.
func rates(of func(size float64) float64) (out []Point) {
	for _, size := range []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20} {
		out = append(out, Point{Size: size, IOPS: of(float64(size))})
	}
	return out
}

func TestFindLimits(t *testing.T) {
	const bps = 60 << 20
	two := func(size float64) float64 { return min(1500, bps/size) }
	for _, tt := range []struct {
		name   string
		points []Point
		want   *Limits
	}{
		{"both limits", rates(two), &Limits{1500, bps}},
		{"measured a little above them", append(rates(two), Point{4 << 10, 1530}, Point{1 << 20, 61.3}), &Limits{1500, bps}},
		{"a sum", rates(func(size float64) float64 { return 1 / (1/1500. + size/bps) }), nil},
		{"sequential operations are faster", append(rates(two), Point{4 << 10, 3000}), nil},
		{"writes are slower", append(rates(two), rates(func(size float64) float64 { return two(size) / 2 })...), nil},
		{"operations only", rates(func(float64) float64 { return 100 }), nil},
		{"bytes only", rates(func(size float64) float64 { return bps / size }), nil},
		{"nothing", nil, nil},
	} {
		got := FindLimits(tt.points)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
