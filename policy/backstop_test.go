package policy

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func wbps(d blkio.Disk, amount blkio.Amount) Setting { return set(d, blkio.Wbps, amount) }

// limit returns the four limits of a disk, without those that are Unset.
func limit(d blkio.Disk, l blkio.Limits) Settings {
	var out Settings
	for k, amount := range l {
		if amount != blkio.Unset {
			out = append(out, set(d, blkio.Key(k), amount))
		}
	}
	return out
}

func lines(s Settings) []string {
	var out []string
	for _, l := range s.Lines() {
		out = append(out, l.Text)
	}
	return out
}

// allOf returns the decisions for containers with these settings, of which it is not known which other disks they use.
func allOf(settings ...Settings) (out []Desired) {
	for _, s := range settings {
		out = append(out, Desired{Settings: s})
	}
	return out
}

func TestBackstop(t *testing.T) {
	tests := []struct {
		name string
		in   []Settings
		want []string
	}{
		{"no containers", nil, nil},
		{"no limits", []Settings{{}, {}}, nil},
		{"one", []Settings{NewSettings(wbps(sda, 5))}, []string{"8:0 wbps=5"}},
		{"sum", []Settings{NewSettings(wbps(sda, 5)), NewSettings(wbps(sda, 7))}, []string{"8:0 wbps=12"}},
		{"an unlimited container", []Settings{NewSettings(wbps(sda, 5)), {}}, nil},
		{"max is unlimited", []Settings{NewSettings(wbps(sda, 5)), NewSettings(wbps(sda, blkio.Max))}, nil},
		{"only max", []Settings{NewSettings(wbps(sda, blkio.Max))}, nil},
		{"by disk", []Settings{NewSettings(wbps(sdb, 3), wbps(sda, 5)), NewSettings(wbps(sdc, 7), wbps(sdb, 1))}, []string{"8:16 wbps=4"}},
		{"sorted", []Settings{NewSettings(wbps(sdc, 3), wbps(sda, 5))}, []string{"8:0 wbps=5", "8:32 wbps=3"}},
		{"no sum that the kernel holds", []Settings{NewSettings(wbps(sda, blkio.Wbps.Most())), NewSettings(wbps(sda, 1))}, nil},
		{"the largest sum", []Settings{NewSettings(wbps(sda, blkio.Wbps.Most()-1)), NewSettings(wbps(sda, 1))}, []string{"8:0 wbps=9223372036854775806"}},
		{"by key", []Settings{
			limit(sda, blkio.Limits{1, 2, blkio.Wiops.Most(), 4}),
			limit(sda, blkio.Limits{5, 0, 7, 8}),
		}, []string{"8:0 rbps=6 wiops=12"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, lines(Backstop(allOf(tt.in...)))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestBackstopOfOneUser verifies that a container that does not use a disk, or only reads it, adds nothing to the sum, and that one
// about which this is unknown leaves no sum.
func TestBackstopOfOneUser(t *testing.T) {
	pol, err := ParseFile([]byte(fileHead + "classes: {c: {limits: ['* wbps=5Mi']}}\nrules: [{name: r, class: c}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	none := annotation.Parse(nil)
	rootfs := Container{Name: "b", Rootfs: blkio.Backing{Disks: []blkio.Disk{sda}}}
	with := func(m Mount) Container {
		c := rootfs
		c.Mounts = []Mount{m}
		return c
	}
	data := Mount{Destination: "/data", Backing: &blkio.Backing{Disks: []blkio.Disk{sdb}}}
	readOnly, hung := data, data
	readOnly.ReadOnly, hung.Backing = true, &blkio.Backing{Err: errors.New("no answer")}
	free := "limits.blkio.noderesource.dev/container.b"
	tests := []struct {
		name    string
		with    Container // beside one with the data
		request *annotation.Request
		want    []string
	}{
		{"without the disk", rootfs, none, []string{"8:0 wbps=10485760", "8:16 wbps=5242880"}},
		{"reads it", with(readOnly), none, []string{"8:0 wbps=10485760", "8:16 wbps=5242880"}},
		{"has it", with(data), none, []string{"8:0 wbps=10485760", "8:16 wbps=10485760"}},
		{"unknown", with(hung), none, []string{"8:0 wbps=10485760"}},
		{"a limit of max there", with(data), annotation.Parse(map[string]string{free: "/data wbps=max"}), []string{"8:0 wbps=10485760"}},
		{"max elsewhere", rootfs, annotation.Parse(map[string]string{free: "* wbps=max"}), []string{"8:16 wbps=5242880"}},
	}
	for _, tt := range tests {
		owner := with(data)
		owner.Name = "a"
		var both []Desired
		for _, c := range []Container{owner, tt.with} {
			d, _ := pol.ForPod(&PodFacts{Namespace: "n"}, tt.request).Container(c)
			both = append(both, d)
		}
		if diff := cmp.Diff(tt.want, lines(Backstop(both))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestLowestOfPod(t *testing.T) {
	stop := Backstop(allOf(NewSettings(wbps(sda, 5), wbps(sdb, 5))))
	tests := []struct {
		name  string
		total Settings
		stop  Settings
		want  []string
	}{
		{"nothing", nil, nil, nil},
		{"backstop alone", nil, stop, []string{"8:0 wbps=5", "8:16 wbps=5"}},
		{"total alone", NewSettings(wbps(sdc, 9), wbps(sda, 9)), nil, []string{"8:0 wbps=9", "8:32 wbps=9"}},
		{"the smaller", NewSettings(wbps(sda, 4), wbps(sdb, 6)), stop, []string{"8:0 wbps=4", "8:16 wbps=5"}},
		{"max does not lift the backstop", NewSettings(wbps(sda, blkio.Max)), stop, []string{"8:0 wbps=5", "8:16 wbps=5"}},
		{"max alone", NewSettings(wbps(sdc, blkio.Max)), nil, []string{"8:32 wbps=max"}},
		{"by key", limit(sda, blkio.Limits{3, 0, 0, 8}), stop, []string{"8:0 rbps=3 wbps=5 wiops=8", "8:16 wbps=5"}},
	}
	for _, tt := range tests {
		before := lines(tt.stop)
		if diff := cmp.Diff(tt.want, lines(tt.total.Lowest(tt.stop))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(before, lines(tt.stop)); diff != "" {
			t.Errorf("%s: changed its argument: %s", tt.name, diff)
		}
	}
}

// TestBackstopProperties verifies that for any grants, the backstop exists only if all containers have a limit.
// It is the exact sum, and never below the grant of one of them.
func TestBackstopProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rates := []blkio.Amount{blkio.Unset, 2, 8, 1 << 16, 1 << 31, blkio.Wiops.Most(), blkio.Wbps.Most() - 5, blkio.Wbps.Most(), blkio.Max}
	for range 5000 {
		in := make([]Settings, rnd.IntN(5))
		for i := range in {
			for _, d := range []blkio.Disk{sda, sdb, sdc} {
				if rnd.IntN(4) == 0 {
					continue
				}
				var l blkio.Limits
				for k := range l {
					if r := rates[rnd.IntN(len(rates))]; r == blkio.Max || r <= blkio.Key(k).Most() {
						l[k] = r
					}
				}
				in[i] = append(in[i], limit(d, l)...)
			}
			in[i] = append(in[i], weight(100))
		}
		stop := Backstop(allOf(in...))
		total := NewSettings(wbps(sda, rates[1+rnd.IntN(len(rates)-1)]))
		merged := total.Lowest(stop)
		for _, d := range []blkio.Disk{sda, sdb, sdc} {
			for k := range blkio.NumLimits {
				at := blkio.Address{Key: k, Dev: d.Dev}
				checkSum(t, in, at, amountAt(stop, at))
				want := amountAt(stop, at)
				if asked := amountAt(total, at); want == blkio.Unset || asked != blkio.Unset && asked < want {
					want = asked
				}
				if got := amountAt(merged, at); got != want {
					t.Fatalf("%v: merged %v, want %v", at, got, want)
				}
			}
		}
		if w, ok := stop.Weight(); ok {
			t.Fatalf("a sum of weights: %v", w)
		}
	}
}

func amountAt(s Settings, at blkio.Address) blkio.Amount {
	x, _ := s.Get(at)
	return x.Amount
}

func checkSum(t *testing.T, in []Settings, at blkio.Address, got blkio.Amount) {
	t.Helper()
	var sum float64
	finite := len(in) > 0
	for _, s := range in {
		r := amountAt(s, at)
		finite = finite && r != blkio.Unset && r != blkio.Max
		sum += float64(r)
		if got != blkio.Unset && r > got {
			t.Fatalf("%v: %v is below the grant %v", at, got, r)
		}
	}
	switch {
	case got == blkio.Max, got != blkio.Unset && !finite:
		t.Fatalf("%v: a backstop of %v though one is unlimited", at, got)
	case got != blkio.Unset && float64(got) != sum:
		t.Fatalf("%v: %v is not the sum %v", at, got, sum)
	case got == blkio.Unset && finite && sum < float64(at.Key.Most())/2:
		t.Fatalf("%v: no backstop for %v", at, sum)
	}
}
