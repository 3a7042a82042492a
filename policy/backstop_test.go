package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func grant(disks ...DiskLimits) Desired { return Desired{Disks: disks} }

func wbps(d blkio.Disk, r blkio.Amount) DiskLimits {
	return DiskLimits{Disk: d, Limits: blkio.Limits{blkio.Wbps: r}}
}

func lines(l []blkio.DevLimits) []string {
	var out []string
	for _, d := range l {
		out = append(out, d.String())
	}
	return out
}

func TestBackstop(t *testing.T) {
	tests := []struct {
		name string
		in   []Desired
		want []string
	}{
		{"no containers", nil, nil},
		{"no limits", []Desired{{}, {}}, nil},
		{"one", []Desired{grant(wbps(sda, 5))}, []string{"8:0 wbps=5"}},
		{"sum", []Desired{grant(wbps(sda, 5)), grant(wbps(sda, 7))}, []string{"8:0 wbps=12"}},
		{"an unlimited container", []Desired{grant(wbps(sda, 5)), {}}, nil},
		{"max is unlimited", []Desired{grant(wbps(sda, 5)), grant(wbps(sda, blkio.Max))}, nil},
		{"only max", []Desired{grant(wbps(sda, blkio.Max))}, nil},
		{"by disk", []Desired{grant(wbps(sdb, 3), wbps(sda, 5)), grant(wbps(sdc, 7), wbps(sdb, 1))}, []string{"8:16 wbps=4"}},
		{"sorted", []Desired{grant(wbps(sdc, 3), wbps(sda, 5))}, []string{"8:0 wbps=5", "8:32 wbps=3"}},
		{"no sum that the kernel holds", []Desired{grant(wbps(sda, blkio.Wbps.Most())), grant(wbps(sda, 1))}, nil},
		{"the largest sum", []Desired{grant(wbps(sda, blkio.Wbps.Most()-1)), grant(wbps(sda, 1))}, []string{"8:0 wbps=9223372036854775806"}},
		{"by key", []Desired{
			grant(DiskLimits{Disk: sda, Limits: blkio.Limits{1, 2, blkio.Wiops.Most(), 4}}),
			grant(DiskLimits{Disk: sda, Limits: blkio.Limits{5, 0, 7, 8}}),
		}, []string{"8:0 rbps=6 wiops=12"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, lines(Backstop(tt.in))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestMergePod(t *testing.T) {
	stop := Backstop([]Desired{grant(wbps(sda, 5), wbps(sdb, 5))})
	tests := []struct {
		name  string
		total Desired
		stop  []blkio.DevLimits
		want  []string
	}{
		{"nothing", Desired{}, nil, nil},
		{"backstop alone", Desired{}, stop, []string{"8:0 wbps=5", "8:16 wbps=5"}},
		{"total alone", grant(wbps(sdc, 9), wbps(sda, 9)), nil, []string{"8:0 wbps=9", "8:32 wbps=9"}},
		{"the smaller", grant(wbps(sda, 4), wbps(sdb, 6)), stop, []string{"8:0 wbps=4", "8:16 wbps=5"}},
		{"max does not lift the backstop", grant(wbps(sda, blkio.Max)), stop, []string{"8:0 wbps=5", "8:16 wbps=5"}},
		{"max alone", grant(wbps(sdc, blkio.Max)), nil, []string{"8:32 wbps=max"}},
		{"by key", grant(DiskLimits{Disk: sda, Limits: blkio.Limits{3, 0, 0, 8}}), stop, []string{"8:0 rbps=3 wbps=5 wiops=8", "8:16 wbps=5"}},
	}
	for _, tt := range tests {
		before := lines(tt.stop)
		if diff := cmp.Diff(tt.want, lines(MergePod(tt.total, tt.stop))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(before, lines(tt.stop)); diff != "" {
			t.Errorf("%s: changed its argument: %s", tt.name, diff)
		}
	}
}

// Whatever was granted, the backstop is there only if all have a limit, is
// never below what one of them was granted, and is the exact sum.
func TestBackstopProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rates := []blkio.Amount{blkio.Unset, 2, 8, 1 << 16, 1 << 31, blkio.Wiops.Most(), blkio.Wbps.Most() - 5, blkio.Wbps.Most(), blkio.Max}
	for range 5000 {
		in := make([]Desired, rnd.IntN(5))
		for i := range in {
			for _, d := range []blkio.Disk{sda, sdb, sdc} {
				if rnd.IntN(4) == 0 {
					continue
				}
				dl := DiskLimits{Disk: d}
				for k := range dl.Limits {
					if r := rates[rnd.IntN(len(rates))]; r == blkio.Max || r <= blkio.Key(k).Most() {
						dl.Limits[k] = r
					}
				}
				in[i].Disks = append(in[i].Disks, dl)
			}
		}
		stop := Backstop(in)
		total := grant(wbps(sda, rates[1+rnd.IntN(len(rates)-1)]))
		merged := MergePod(total, stop)
		for _, d := range []blkio.Disk{sda, sdb, sdc} {
			for k := range blkio.NumLimits {
				checkSum(t, in, d.Dev, k, find(stop, d.Dev)[k])
				want := find(stop, d.Dev)[k]
				if asked := rateOf(&total, d.Dev, k); want == blkio.Unset || asked != blkio.Unset && asked < want {
					want = asked
				}
				if got := find(merged, d.Dev)[k]; got != want {
					t.Fatalf("%v %v: merged %v, want %v", d, k, got, want)
				}
			}
		}
	}
}

func checkSum(t *testing.T, in []Desired, dev blkio.Dev, k blkio.Key, got blkio.Amount) {
	t.Helper()
	var sum float64
	finite := len(in) > 0
	for i := range in {
		r := rateOf(&in[i], dev, k)
		finite = finite && r != blkio.Unset && r != blkio.Max
		sum += float64(r)
		if got != blkio.Unset && r > got {
			t.Fatalf("%v %v: %v is below the grant %v", dev, k, got, r)
		}
	}
	switch {
	case got == blkio.Max, got != blkio.Unset && !finite:
		t.Fatalf("%v %v: a backstop of %v though one is unlimited", dev, k, got)
	case got != blkio.Unset && float64(got) != sum:
		t.Fatalf("%v %v: %v is not the sum %v", dev, k, got, sum)
	case got == blkio.Unset && finite && sum < float64(k.Most())/2:
		t.Fatalf("%v %v: no backstop for %v", dev, k, sum)
	}
}

func find(l []blkio.DevLimits, dev blkio.Dev) blkio.Limits {
	for _, d := range l {
		if d.Dev == dev {
			return d.Limits
		}
	}
	return blkio.Limits{}
}
