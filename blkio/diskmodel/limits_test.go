package diskmodel

import "testing"

// rates returns the points of a disk.
func rates(of func(size float64) float64) (out []Point) {
	for _, size := range measured() {
		out = append(out, Point{Size: size, IOPS: of(float64(size))})
	}
	return out
}

// pointsOf returns points with these rates, by size.
func pointsOf(iops ...float64) (out []Point) {
	for i, size := range measured() {
		out = append(out, Point{size, iops[i]})
	}
	return out
}

func TestFindLimits(t *testing.T) {
	const bps = 60 << 20
	two := func(size float64) float64 { return min(1500, bps/size) }
	sum := func(base, bps float64) []Point {
		return rates(func(size float64) float64 { return 1 / (base + size/bps) })
	}
	only := func(rate float64) []Point { return rates(func(float64) float64 { return rate }) }
	streams := func(bps float64) []Point { return rates(func(size float64) float64 { return bps / size }) }
	for _, tt := range []struct {
		name               string
		random, sequential []Point
		want               *Limits
	}{
		{"both limits", rates(two), rates(two), &Limits{1500, bps}},
		{"measured a little above them", append(rates(two), Point{4 << 10, 1530}, Point{1 << 20, 61.3}), nil, &Limits{1500, bps}},
		{"a cloud merges all that is sequential", rates(two), streams(bps), &Limits{1500, bps}},
		// Of two calibrations of the emulated node's disk of 1,500 operations and 60 MiB a second.
		{
			"sequential requests merge", pointsOf(1500, 1500, 1500, 1500, 960, 240, 60),
			pointsOf(2130, 2130, 2130, 2130, 960, 240, 60), &Limits{1500, 240 << 18},
		},
		{
			"a delayed load", append(pointsOf(1498, 1382, 1503, 1499, 967, 239.8, 60), pointsOf(1564, 1504, 1496, 1500, 959, 240, 60)...),
			append(pointsOf(1680, 1954, 1675, 1642, 962, 239.9, 60), pointsOf(1629, 1614, 1660, 1741, 960, 240, 60)...), &Limits{1498, 60 << 20},
		},
		{"a sum", sum(1/1500., bps), nil, nil},
		{"a rotating disk", sum(.005, 150e6), streams(150e6), nil},
		{"a rotating disk whose large seeks are as fast", rates(two), streams(1.5 * bps), nil},
		{"an SSD", rates(func(size float64) float64 { return min(70_000, 460e6/size) }), streams(500e6), nil},
		{"random operations are faster", append(rates(two), Point{4 << 10, 3000}), nil, nil},
		{"sequential operations are slower", rates(two), append(rates(two), Point{4 << 10, 1000}), nil},
		{"writes are slower", append(rates(two), rates(func(size float64) float64 { return two(size) / 2 })...), nil, nil},
		{"writes are a little slower", append(rates(two), rates(func(size float64) float64 { return .88 * two(size) })...), nil, nil},
		{"operations only", only(100), nil, nil},
		{"bytes only", streams(bps), nil, nil},
		{"nothing", nil, nil, nil},
	} {
		got := FindLimits(tt.random, tt.sequential)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
