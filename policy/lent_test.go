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
	return Setting{blkio.Value{Address: blkio.Address{Key: k, Dev: d.Dev}, Amount: amount}, Source{Kind: by, Name: "x"}, basis}
}

// lending returns what is lent on a disk: a limit of wbps.
func lending(d blkio.Disk, amount blkio.Amount) Lent {
	return Lent{[]blkio.Disk{d}, Settings{rate(d, blkio.Wbps, amount, FromClaim, LentLimit)}}
}

// TestLends verifies which disks and limits a container lends: of devices that are claims.
func TestLends(t *testing.T) {
	raw := mount("/dev/data", blkio.Backing{Disks: []blkio.Disk{sdb}})
	files, private, other := mount("/data", on(sdc)), injected(raw), mount("/dev/other", blkio.Backing{Disks: []blkio.Disk{sda}})
	limited := Volume{Name: "v", Claim: "data", Places: []Place{{"db", "/dev/data"}, {"db", "/data"}}, Limits: new("wbps=2Mi")}
	unlimited := limited
	unlimited.Limits = nil
	for name, tt := range map[string]struct {
		policy, annotation string
		mounts             []Mount
		claims             *Volumes
		disks              []blkio.Disk
		want               []string
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
		"observed":             {policy: "mode: observe", mounts: []Mount{raw}, claims: NewVolumes([]Volume{limited})},
		"ignored":              {policy: "rules: [{name: all, annotations: ignore}]", mounts: []Mount{raw}, claims: NewVolumes([]Volume{limited}), disks: []blkio.Disk{sdb}},
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
		if diff := cmp.Diff(tt.disks, got.Disks); diff != "" {
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
	none := Lent{Disks: []blkio.Disk{sdb}}
	for name, tt := range map[string]struct{ got, want Lent }{
		"raised":       {b5.Over(b2), b5},
		"removed":      {none.Over(b2), none},
		"other disk":   {none.Over(Together(b2, c3)), Together(none, c3)},
		"nothing":      {Lent{}.Over(b2), b2},
		"of two":       {Together(b5, b2), b2},
		"of two again": {Together(b2, b5), b2},
		"one without":  {Together(none, b5), b5},
		"gone":         {Together(b2, c3).Without([]blkio.Disk{sdb}), c3},
	} {
		if !tt.got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}

// TestBorrow verifies for random decisions that what is lent raises no limit and removes none, and that Unborrow finds both again.
func TestBorrow(t *testing.T) {
	pod := Default().ForPod(&PodFacts{Namespace: "team"}, nil)
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		random := func(by SourceKind, basis Basis, room blkio.Amount) (out Settings) {
			for _, d := range []blkio.Disk{sda, sdb, sdc} {
				for k := range blkio.NumLimits {
					if rnd.IntN(2) == 0 {
						out = append(out, rate(d, k, 1<<20+blkio.Amount(rnd.IntN(3))+room, by, basis))
					}
				}
			}
			return NewSettings(out...)
		}
		own := Desired{Settings: random(FromAnnotation, Asked, 0), Disks: map[blkio.Dev]string{}}
		lent := Lent{Limits: random(FromClaim, LentLimit, 0)}
		for _, d := range []blkio.Disk{sda, sdb, sdc} {
			if slices.ContainsFunc(own.Settings, func(s Setting) bool { return s.Dev == d.Dev }) {
				own.Disks[d.Dev] = d.Name
			}
			if slices.ContainsFunc(lent.Limits, func(s Setting) bool { return s.Dev == d.Dev }) {
				lent.Disks = append(lent.Disks, d)
			}
		}
		got := pod.Borrow(own, &lent)
		for _, s := range slices.Concat(own.Settings, lent.Limits) {
			if now, found := got.Settings.Get(s.Address); !found || now.Amount > s.Amount {
				t.Fatalf("%d: %v became %v", seed, s, now)
			}
			if got.Disks[s.Dev] == "" {
				t.Fatalf("%d: a disk without a name: %v", seed, s)
			}
		}
		back, again := got.Unborrow()
		if !slices.Equal(back.Settings, own.Settings) || len(back.Lowered) != 0 || !again.Equal(lent) {
			t.Fatalf("%d: %v and %v, want %v and %v", seed, back, again, own, lent)
		}
	}
}

// TestBorrowAllowed verifies that what the rule of the owner does not allow its claims is not borrowed.
func TestBorrowAllowed(t *testing.T) {
	lent := lending(sdb, 2<<20)
	for text, want := range map[string]int{
		"": 1,
		"rules: [{name: all, annotations: ignore}]":                      0,
		"rules: [{name: all, annotations: reject}]":                      0,
		"rules: [{name: all, bounds: {min: ['* wbps=3Mi']}}]":            0,
		"rules: [{name: all, bounds: {min: ['* wbps=2Mi riops=1000']}}]": 1,
		"floors: {bps: 3Mi, iops: 8}":                                    0,
		"bounds: {max: ['* wbps=1Mi']}":                                  1, // a higher limit is one still
	} {
		p, err := ParseFile([]byte(fileHead + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.ForPod(&PodFacts{Namespace: "team"}, nil).Borrow(Desired{}, &lent); len(got.Settings) != want || len(got.Lowered) != 0 {
			t.Errorf("%s: %v", text, got)
		}
	}
	if got := Default().ForPod(&PodFacts{Namespace: "team", Handler: "kata"}, nil).Borrow(Desired{}, &lent); len(got.Settings) != 0 {
		t.Errorf("another kernel: %v", got)
	}
	if got := (*Pod)(nil).Borrow(Desired{}, &lent); len(got.Settings) != 0 {
		t.Errorf("an undecided container: %v", got)
	}
}
