package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// rate is a limit on a disk.
func rate(d blkio.Disk, k blkio.Key, amount blkio.Amount, by SourceKind, basis Basis) Setting {
	return Setting{Value: blkio.Value{Address: blkio.Address{Key: k, Dev: d.Dev}, Amount: amount}, Source: Source{Kind: by, Name: "x"}, Basis: basis}
}

// lending returns what is lent on a disk: a limit of wbps.
func lending(d blkio.Disk, amount blkio.Amount) Lent {
	return Lent{Disks: []blkio.Disk{d}, Limits: Settings{rate(d, blkio.Wbps, amount, FromClaim, LentLimit)}}
}

// TestLends verifies which disks and limits a container lends: of devices that are claims.
func TestLends(t *testing.T) {
	raw := mount("/dev/data", blkio.Backing{Disks: []blkio.Disk{sdb}})
	files, private, other := mount("/data", on(sdc)), injected(raw), mount("/dev/other", blkio.Backing{Disks: []blkio.Disk{sda}})
	limited := Volume{Name: "v", Claim: "data", Places: []Place{{"db", "/dev/data"}, {"db", "/data"}}, Limits: new("wbps=2Mi")}
	more := mount("/dev/more", blkio.Backing{Disks: []blkio.Disk{sdc}})
	unlimited, wrong, largest := limited, limited, limited
	unlimited.Limits, wrong.Limits, largest.Limits = nil, new("wpbs=2Mi"), new("wbps=max")
	for name, tt := range map[string]struct {
		policy, annotation string
		mounts             []Mount
		claims             *Volumes
		disks              []blkio.Disk
		want               []string
		unsure             []blkio.Disk
	}{
		"a device":             {mounts: []Mount{raw, files, other}, claims: NewVolumes([]Volume{limited}), disks: []blkio.Disk{sdb}, want: []string{"sdb wbps=2Mi from claim data"}},
		"without a limit":      {mounts: []Mount{raw}, claims: NewVolumes([]Volume{unlimited}), disks: []blkio.Disk{sdb}},
		"no claims":            {mounts: []Mount{raw}, claims: NewVolumes(nil)},
		"unknown":              {mounts: []Mount{raw}, claims: UnknownVolumes("too many")},
		"not known yet":        {mounts: []Mount{raw}},
		"a filesystem":         {mounts: []Mount{files}, claims: NewVolumes([]Volume{limited})},
		"privileged":           {mounts: []Mount{private}, claims: NewVolumes([]Volume{limited})},
		"not there":            {mounts: []Mount{mount("/dev/data", blkio.Backing{Reason: "no such device", Missing: true})}, claims: NewVolumes([]Volume{limited})},
		"of another container": {mounts: []Mount{raw}, claims: NewVolumes([]Volume{{Name: "v", Claim: "data", Places: []Place{{"web", "/dev/data"}}, Limits: new("wbps=2Mi")}})},
		"an annotation wins":   {annotation: "/dev/data wbps=9Mi", mounts: []Mount{raw}, claims: NewVolumes([]Volume{limited}), disks: []blkio.Disk{sdb}},
		"observed":             {policy: "mode: observe", mounts: []Mount{raw}, claims: NewVolumes([]Volume{limited}), disks: []blkio.Disk{sdb}, want: []string{"sdb wbps=2Mi from claim data"}},
		"wrong":                {mounts: []Mount{raw, files}, claims: NewVolumes([]Volume{wrong}), disks: []blkio.Disk{sdb}, unsure: []blkio.Disk{sdb}},
		"refused":              {policy: "bounds: {max: ['* wbps=1Mi']}", mounts: []Mount{raw}, claims: NewVolumes([]Volume{limited}), disks: []blkio.Disk{sdb}, unsure: []blkio.Disk{sdb}},
		"wrong elsewhere": {
			mounts: []Mount{raw, more}, disks: []blkio.Disk{sdb, sdc}, unsure: []blkio.Disk{sdc},
			claims: NewVolumes([]Volume{unlimited, {Name: "w", Claim: "more", Places: []Place{{"db", "/dev/more"}}, Limits: new("wbps=1Mi wpbs=1")}}),
		},
		"no limit": {mounts: []Mount{raw}, claims: NewVolumes([]Volume{largest}), disks: []blkio.Disk{sdb}},
		"ignored":  {policy: "rules: [{name: all, annotations: ignore}]", mounts: []Mount{raw}, claims: NewVolumes([]Volume{limited}), disks: []blkio.Disk{sdb}},
	} {
		p, err := ParseFile([]byte(fileHead + tt.policy))
		if err != nil {
			t.Fatal(err)
		}
		annotations := map[string]string{}
		if tt.annotation != "" {
			annotations[keyEach] = tt.annotation
		}
		pod := p.ForPod(&PodFacts{Namespace: "team", Volumes: tt.claims}, annotation.Parse(annotations))
		c := Container{Name: "db", MemoryLimited: true, Mounts: tt.mounts}
		d, _ := pod.Container(c)
		got := pod.Lends(&c, &d)
		if diff := cmp.Diff(tt.disks, got.Disks) + cmp.Diff(tt.unsure, got.Unsure); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		lent := Desired{Settings: got.Limits, Disks: d.Disks}
		if diff := cmp.Diff(tt.want, sources(lent)); diff != "" || slices.ContainsFunc(got.Limits, func(s Setting) bool { return s.Basis != LentLimit }) {
			t.Errorf("%s: %v, -want +got:\n%s", name, got.Limits, diff)
		}
	}
}

// TestLendsRoom verifies that a late lender lends the room that it gets in place of the limit of its claim.
func TestLendsRoom(t *testing.T) {
	c := Container{Name: "db", Mounts: []Mount{mount("/dev/data", blkio.Backing{Disks: []blkio.Disk{sdb}})}}
	claims := NewVolumes([]Volume{{Name: "v", Claim: "data", Places: []Place{{"db", "/dev/data"}}}})
	d := Desired{Settings: Settings{rate(sdb, blkio.Wbps, 5, FromRule, Room), rate(sdb, blkio.Riops, 9, FromRule, Asked)}}
	got := Default().ForPod(&PodFacts{Volumes: claims}, nil).Lends(&c, &d)
	if want := (Settings{rate(sdb, blkio.Wbps, 5, FromRule, LentLimit)}); !slices.Equal(got.Limits, want) || d.Settings[0].Basis != Room {
		t.Errorf("%v of %v", got.Limits, d.Settings)
	}
}

// TestLentOver verifies that a lender replaces what was lent before, only on its own disks. Of two lenders the lower limit counts.
func TestLentOver(t *testing.T) {
	b5, b2, c3 := lending(sdb, 5), lending(sdb, 2), lending(sdc, 3)
	none, wrong := Lent{Disks: []blkio.Disk{sdb}}, Lent{Disks: []blkio.Disk{sdb}, Unsure: []blkio.Disk{sdb}}
	onB, onC := []blkio.Disk{sdb}, []blkio.Disk{sdc}
	other := Lent{Disks: onB, Limits: Settings{rate(sdb, blkio.Riops, 9, FromClaim, LentLimit)}}
	both := Lent{Disks: onB, Limits: NewSettings(other.Limits[0], b2.Limits[0])}
	for name, tt := range map[string]struct{ got, want Lent }{
		"raised":        {b5.Over(b2), b5},
		"removed":       {none.Over(b2), none},
		"other disk":    {none.Over(Together(b2, c3)), Together(none, c3)},
		"nothing":       {Lent{}.Over(b2), b2},
		"of two":        {Together(b5, b2), b2},
		"of two again":  {Together(b2, b5), b2},
		"one without":   {Together(none, b5), b5},
		"gone":          {Together(b2, c3).Without(onB), c3},
		"wrong now":     {wrong.Over(b2), b2},
		"and another":   {Together(wrong, c3).Over(b2), Together(b2, c3)},
		"one is wrong":  {Together(wrong, b5).Over(b2), b5},
		"wrong in part": {Together(wrong, other).Over(b2), both},
		"wrong on c":    {Together(none, Lent{Disks: onC, Unsure: onC}).Over(Together(b2, c3)), Together(none, c3)},
	} {
		if !tt.got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}

// TestBorrow verifies for random decisions that what is lent raises no limit and removes none, and that Unborrow finds both again, also
// where the decision has noted a value that is not in force: that is one of an earlier decision, above the one in force.
func TestBorrow(t *testing.T) {
	pod := Default().ForPod(&PodFacts{Namespace: "team"}, nil)
	disks := []blkio.Disk{sda, sdb, sdc}
	for seed := range uint64(5000) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		random := func(by SourceKind, basis Basis, least blkio.Amount) (out Settings) {
			for _, d := range disks {
				for k := range blkio.NumLimits {
					if rnd.IntN(2) == 0 {
						out = append(out, rate(d, k, least+blkio.Amount(rnd.IntN(3)), by, basis))
					}
				}
			}
			return NewSettings(out...)
		}
		own := Desired{Settings: random(FromRule, Asked, 1<<20), Disks: map[blkio.Dev]string{}}
		if rnd.IntN(2) == 0 {
			own.Lowered = random(FromAnnotation, Standing, 1<<20+blkio.Amount(rnd.IntN(4)))
		}
		lent := Lent{Limits: random(FromClaim, LentLimit, 1<<20)}
		for _, d := range disks {
			if slices.ContainsFunc(own.Settings.Join(own.Lowered), func(s Setting) bool { return s.Dev == d.Dev }) {
				own.Disks[d.Dev] = d.Name
			}
			if rnd.IntN(4) == 0 || slices.ContainsFunc(lent.Limits, func(s Setting) bool { return s.Dev == d.Dev }) {
				lent.Disks = append(lent.Disks, d)
			}
		}
		got := pod.Borrow(own, &lent)
		for _, s := range slices.Concat(own.Settings, lent.Limits) {
			if now, found := got.Settings.Get(s.Address); !found || now.Amount > s.Amount {
				t.Fatalf("%d: %v became %v", seed, s, now)
			}
		}
		for _, s := range slices.Concat(got.Settings, got.Lowered, lent.Noted()) {
			if got.Disks[s.Dev] == "" {
				t.Fatalf("%d: a disk without a name: %v", seed, s)
			}
		}
		back, again := got.Unborrow(lent.Noted())
		lowered := got.Settings.Where(Setting.isLent)
		want := Desired{ // a noted value is what was granted there, before the one in force
			Settings: own.Lowered.Where(func(s Setting) bool { return len(Settings{s}.Without(lowered)) == 0 }).Join(own.Settings),
			Lowered:  own.Lowered.Without(lowered),
		}
		isAny := func(Setting) bool { return true }
		switch {
		case !again.Equal(lent):
			t.Fatalf("%d: lent %v, want %v", seed, again, lent)
		case !slices.Equal(back.granted(isAny), own.granted(isAny)):
			t.Fatalf("%d: granted %v, want %v", seed, back.granted(isAny), own.granted(isAny))
		case !slices.Equal(back.Settings, want.Settings) || !slices.Equal(back.Lowered, want.Lowered):
			t.Fatalf("%d: %v, want %v", seed, back, want)
		}
	}
}

// TestBorrowAllowed verifies that nothing is borrowed where the rule of the owner ignores claims, and no less than its bounds.
func TestBorrowAllowed(t *testing.T) {
	lent := lending(sdb, 2<<20)
	for text, want := range map[string]blkio.Amount{
		"":              2 << 20,
		"mode: observe": 2 << 20, // what is in force is the node's matter
		"rules: [{name: all, annotations: ignore}]":                      0,
		"rules: [{name: all, annotations: reject}]":                      0,
		"rules: [{name: all, bounds: {min: ['* wbps=3Mi']}}]":            3 << 20,
		"rules: [{name: all, bounds: {min: ['* wbps=2Mi riops=1000']}}]": 2 << 20,
		"floors: {bps: 3Mi, iops: 8}":                                    3 << 20,
		"bounds: {max: ['* wbps=1Mi']}":                                  2 << 20, // a higher limit is one still
	} {
		p, err := ParseFile([]byte(fileHead + text))
		if err != nil {
			t.Fatal(err)
		}
		got := p.ForPod(&PodFacts{Namespace: "team"}, nil).Borrow(Desired{}, &lent)
		if now := got.Settings.DevLimits()[sdb.Dev][blkio.Wbps]; now != want || len(got.Lowered) != 0 {
			t.Errorf("%s: %v", text, got)
		}
		if _, again := got.Unborrow(lent.Noted()); !again.Equal(lent) { // another policy may allow it
			t.Errorf("%s: %v", text, again)
		}
	}
	if got := Default().ForPod(&PodFacts{Namespace: "team", Handler: "kata"}, nil).Borrow(Desired{}, &lent); len(got.Settings) != 0 {
		t.Errorf("another kernel: %v", got)
	}
	if got := (*Pod)(nil).Borrow(Desired{}, &lent); len(got.Settings) != 0 {
		t.Errorf("an undecided container: %v", got)
	}
}
