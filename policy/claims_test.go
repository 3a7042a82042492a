package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// claimOf returns a volume of a claim that containers have at CONTAINER:PATH.
func claimOf(name string, places ...string) Volume {
	v := Volume{Name: name, Claim: name}
	for _, p := range places {
		container, path, _ := strings.Cut(p, ":")
		v.Places = append(v.Places, Place{container, path})
	}
	return v
}

// limited returns the volume with the annotation of its claim.
func (v Volume) limited(text string) Volume {
	v.Limits = &text
	return v
}

// decideClaims decides for the container db by a policy, annotations, and claims.
func decideClaims(t *testing.T, policy string, annotations map[string]string, claims *Volumes) (Desired, error) {
	t.Helper()
	return decideAfter(t, Desired{}, policy, annotations, claims)
}

// decideAfter is decideClaims for a container that was granted something before.
func decideAfter(t *testing.T, before Desired, policy string, annotations map[string]string, claims *Volumes) (Desired, error) {
	t.Helper()
	p, err := ParseFile([]byte(fileHead + policy))
	if err != nil {
		t.Fatal(err)
	}
	c := db()
	c.MemoryLimited = true
	pod := p.ForPod(&PodFacts{Namespace: "team", Volumes: claims}, annotation.Parse(annotations))
	d, err := pod.Container(c)
	pod.Carry(&d, &before, c.Name)
	return d, err
}

// sources formats limits with their sources: "sdb wbps 2 from claim data".
func sources(d Desired) (out []string) {
	for _, s := range d.Settings {
		out = append(out, d.Disks[s.Dev]+" "+s.Key.String()+"="+annotation.FormatAmount(s.Key, s.Amount)+" from "+s.Source.String())
	}
	return out
}

// TestClaimPrecedence verifies for each disk and key the order container.NAME, containers, the claim, the class, and the names
// of the sources.
func TestClaimPrecedence(t *testing.T) {
	const policy = `
classes: {bronze: {limits: ["* wbps=9Mi wiops=900"]}}
rules: [{name: all, class: bronze}]
`
	pg := claimOf("pg", "db:/data", "web:/x").limited("wbps=3Mi rbps=3Mi")
	for name, tt := range map[string]struct {
		volumes     []Volume
		annotations map[string]string
		want        []string // of sdb and sdc
	}{
		"beats the class": {
			volumes: []Volume{pg},
			want: []string{
				"sdb rbps=3Mi from claim pg", "sdb wbps=3Mi from claim pg", "sdb wiops=900 from rule all, class bronze",
				"sdc wbps=9Mi from rule all, class bronze", "sdc wiops=900 from rule all, class bronze",
			},
		},
		"annotations beat it": {
			volumes:     []Volume{pg, claimOf("wal", "db:/data/wal").limited("wbps=4Mi wiops=40")},
			annotations: map[string]string{keyEach: "* wbps=2Mi", keyDB: "@wal wiops=20"},
			want: []string{
				"sdb rbps=3Mi from claim pg", "sdb wbps=2Mi from limits/containers #1", "sdb wiops=900 from rule all, class bronze",
				"sdc wbps=2Mi from limits/containers #1", "sdc wiops=20 from limits/container.db #1",
			},
		},
		"annotation, then the classes": {
			volumes: []Volume{claimOf("wal", "db:/data/wal").limited("wbps=4Mi").classed("8Mi", "80")},
			want: []string{
				"sdb wbps=9Mi from rule all, class bronze", "sdb wiops=900 from rule all, class bronze",
				"sdc wbps=4Mi from claim wal", "sdc riops=80 from claim wal, class fast", "sdc wiops=900 from rule all, class bronze",
			},
		},
		"in other containers": {
			volumes: []Volume{claimOf("wal", "web:/data/wal").limited("wbps=4Mi")},
			want: []string{
				"sdb wbps=9Mi from rule all, class bronze", "sdb wiops=900 from rule all, class bronze",
				"sdc wbps=9Mi from rule all, class bronze", "sdc wiops=900 from rule all, class bronze",
			},
		},
	} {
		d, err := decideClaims(t, policy, tt.annotations, NewVolumes(tt.volumes))
		if err != nil || len(d.Claims) > 0 {
			t.Errorf("%s: %v, %v", name, err, d.Claims)
		}
		got := slices.DeleteFunc(sources(d), func(s string) bool { return strings.HasPrefix(s, "sda ") })
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestClaimNotCounted verifies that limits of a claim that are wrong, out of bounds, or on no disk count not at all, with a
// warning, and never reject a container.
func TestClaimNotCounted(t *testing.T) {
	const bounds = "bounds: {max: [\"* wbps=5Mi\"], min: [\"* riops=20\"]}\n"
	wal := claimOf("wal", "db:/data/wal")
	for name, tt := range map[string]struct {
		policy string
		volume Volume
		want   string // the warning
	}{
		"wrong":           {"", wal.limited("wpbs=1Mi"), `"claim wal": "wpbs=1Mi": unknown key "wpbs" (did you mean "wbps"?)`},
		"wrong driver":    {"", wal.limited("wbps=1Mi").driven("1.5"), `"claim wal, driver csi.example.com": "qos.linbit.com/wbps=1.5": "1.5" is not a whole number (write a whole number such as 50Mi)`},
		"grown above":     {bounds, wal.limited("wbps=1Mi/Gi").sized(6), `"claim wal": "wbps=1Mi/Gi": wbps=6Mi is above the bound (write at most 5Mi, bounds.max of the node policy)`},
		"unknown size":    {"", wal.limited("wbps=1Mi/Gi"), `"claim wal": "wbps=1Mi/Gi": the size of the claim is unknown (set spec.resources.requests.storage of the claim)`},
		"wrong class":     {"", wal.limited("wbps=1Mi").classed("", "1.5"), `"claim wal, class fast": "riops=1.5": "1.5" is not a whole number (write a whole number such as 2k)`},
		"above":           {bounds, wal.limited("wbps=6Mi"), `"claim wal": "wbps=6Mi": wbps=6Mi is above the bound (write at most 5Mi, bounds.max of the node policy)`},
		"max":             {bounds, wal.limited("rbps=1Mi wbps=max"), `"claim wal": "rbps=1Mi wbps=max": wbps=max is above the bound (write at most 5Mi, bounds.max of the node policy)`},
		"class above":     {bounds, wal.limited("rbps=1Mi").classed("6Mi", ""), `"claim wal, class fast": "wbps=6Mi": wbps=6Mi is above the bound (write at most 5Mi, bounds.max of the node policy)`},
		"below":           {bounds, wal.limited("riops=10"), `"claim wal": "riops=10": riops=10 is below the bound (write at least 20, bounds.min of the node policy)`},
		"floor":           {"", wal.limited("wbps=1"), `"claim wal": "wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`},
		"unknown":         {"", Volume{Claim: "wal", Places: wal.Places, Omitted: map[string]string{"limits": "more than 4096 bytes"}}, `"claim wal": the limits are unknown: more than 4096 bytes`},
		"ignored":         {"rules: [{name: r, annotations: ignore}]\n", wal.limited("wbps=1Mi"), `rule r of the node policy ignores the limits of claims`},
		"rejected":        {"rules: [{name: r, annotations: reject}]\n", wal.limited("wbps=1Mi"), `rule r of the node policy ignores the limits of claims`},
		"no disk":         {"", claimOf("tmp", "db:/scratch").limited("wbps=1Mi"), ""},
		"mount is away":   {"", claimOf("tmp", "db:/away").limited("wbps=1Mi"), `"claim tmp": "/away" is on no mount of the container`},
		"another handler": {"hostKernelHandlers: [other]\n", wal.limited("wbps=1Mi"), ""},
	} {
		d, err := decideClaims(t, tt.policy+"onError: {invalid: reject, unenforceable: reject, internal: reject}\n", nil, NewVolumes([]Volume{tt.volume}))
		if err != nil || len(d.Settings) > 0 || len(d.Errors) > 0 {
			t.Errorf("%s: %v, %v", name, err, limits(d))
		}
		if tt.want != "" && !slices.Equal(d.Warnings, []string{tt.want}) {
			t.Errorf("%s:\n got %q\nwant %q", name, d.Warnings, tt.want)
		}
		isReported := name == "ignored" || name == "rejected" || slices.Contains(d.WarningKinds, ClaimNotEnforced)
		if !isReported || tt.want == "" && len(d.Skipped) != 1 {
			t.Errorf("%s: %v, skipped %v", name, d.WarningKinds, d.Skipped)
		}
	}
}

// TestClaimsOnOneDisk verifies that of two claims on one disk the lower value holds.
func TestClaimsOnOneDisk(t *testing.T) {
	d, err := decideClaims(t, "", nil, NewVolumes([]Volume{claimOf("a", "db:/data").limited("wbps=2Mi"), claimOf("b", "db:/logs").limited("wbps=1Mi rbps=1Mi")}))
	if err != nil || !slices.Equal(sources(d), []string{"sdb rbps=1Mi from claim b", "sdb wbps=1Mi from claim b"}) {
		t.Errorf("%q, %v", sources(d), err)
	}
	if want := []string{`"claim b": conflicting wbps on disk sdb 8:16: "claim b" has 1Mi, "claim a" has 2Mi: the lower value holds`}; !slices.Equal(d.Warnings, want) {
		t.Errorf("%q", d.Warnings)
	}
}

// TestClaimsOfPod verifies which pods the limits of claims concern.
func TestClaimsOfPod(t *testing.T) {
	limited, none := NewVolumes([]Volume{claimOf("a", "db:/data").limited("wbps=2Mi")}), NewVolumes([]Volume{claimOf("a", "db:/data")})
	ignoring, err := ParseFile([]byte(fileHead + "rules: [{name: r, annotations: ignore}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		policy                    *Policy
		claims                    *Volumes
		concerns, isEmpty, misses bool
	}{
		{Default(), limited, true, false, false},
		{Default(), none, false, true, false},
		{Default(), nil, false, true, true},
		{Default(), UnknownVolumes("x"), false, true, true},
		{ignoring, limited, false, false, false},
		{ignoring, nil, false, true, false},
	} {
		facts := &PodFacts{Volumes: tt.claims}
		pod := tt.policy.ForPod(facts, nil)
		if got := tt.policy.Concerns(facts); got != tt.concerns || pod.IsEmpty() != tt.isEmpty || pod.MissesClaims() != tt.misses {
			t.Errorf("%+v: concerns %t, is empty %t, misses claims %t", tt, got, pod.IsEmpty(), pod.MissesClaims())
		}
	}
	again := NewVolumes([]Volume{claimOf("a", "db:/data").limited("wbps=2Mi")})
	if !limited.Equal(again) || limited.Equal(none) || limited.Equal(nil) || !(*Volumes)(nil).Equal(nil) {
		t.Error("equal claims are not, or others are")
	}
}

// TestClaimsKept verifies that limits of a claim stay on a running container while they are wrong or unknown, and not when the
// claim has others.
func TestClaimsKept(t *testing.T) {
	decide := func(text string, before Desired) Desired {
		d, _ := decideAfter(t, before, "", nil, NewVolumes([]Volume{claimOf("a", "db:/data").limited(text).classed("", "50")}))
		return d
	}
	former := decide("wbps=2Mi", Desired{})
	for text, want := range map[string][]string{
		"wpbs=1Mi": {"sdb wbps=2Mi from claim a", "sdb riops=50 from claim a, class fast"},
		"rbps=1Mi": {"sdb rbps=1Mi from claim a", "sdb riops=50 from claim a, class fast"},
	} {
		d := decide(text, former)
		if diff := cmp.Diff(want, sources(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
		if isWarned := slices.Contains(d.Warnings, claimKept); isWarned != (text == "wpbs=1Mi") {
			t.Errorf("%s: %q", text, d.Warnings)
		}
	}
	away, err := decideAfter(t, former, "classes: {low: {limits: [\"* riops=10\"]}}\nrules: [{name: r, class: low}]\n", map[string]string{keyDB: "/data rbps=3Mi"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"sda riops=10 from rule r, class low", "sdb rbps=3Mi from limits/container.db #1", "sdb wbps=2Mi from claim a", "sdb riops=50 from claim a, class fast", "sdc riops=10 from rule r, class low"}
	if diff := cmp.Diff(want, sources(away)); diff != "" || away.Disks[sdb.Dev] != "sdb" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// FuzzClaims verifies for a random policy, annotations and claim that each value is that of the model: the claim's limits
// count as a whole, between the annotations and the class, and never beyond a bound.
func FuzzClaims(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g, m := generator{rand.New(rand.NewPCG(seed, 19))}, &model{}
		g.policy(m)
		g.pod(m)
		en := modelEntry{target: "@wal"}
		for range 1 + g.IntN(3) {
			k := blkio.Key(g.IntN(int(blkio.NumLimits)))
			en.values[k] = g.rate(k, 3)
		}
		m.scopes["claim"] = &modelScope{limits: []modelEntry{en}}
		claims := NewVolumes([]Volume{claimOf("wal", "db:/data/wal").limited(strings.TrimPrefix(en.String(), "@wal "))})
		d, err := decideClaims(t, m.text, m.annotations, claims)
		if without, errWithout := decideClaims(t, m.text, m.annotations, nil); (err == nil) != (errWithout == nil) || len(d.Errors) != len(without.Errors) {
			t.Errorf("with the claim: %v, without: %v", err, errWithout)
		}
		m.compare(t, &d, m.asked("container.db"), m.asked("containers"), m.asked("claim"), m.class())
		for _, w := range d.Warnings {
			checkLine(t, w)
		}
		if t.Failed() {
			t.Logf("%s\n%q\n%s", m.text, m.annotations, en.String())
		}
	})
}

// FuzzClaimText verifies that no text of a claim, and none of its class or its storage driver, gives a limit beyond the bounds or below a floor,
// rejects a container, or is printed as it is.
func FuzzClaimText(f *testing.F) {
	for seed, text := range []string{"wbps=50Mi", "wbps=max rbps=1", "wbps=5Mi;riops=9e18", "* wbps=1Mi", "wbps=1e36", "# \x1b", "wbps=18446744073709551616", "rbps=6Mi wbps=5242880", "wbps=1Mi+1Mi/Gi..9Mi"} {
		f.Add(text, text, uint64(seed))
	}
	f.Fuzz(func(t *testing.T, text, rate string, seed uint64) {
		g, m := generator{rand.New(rand.NewPCG(seed, 20))}, &model{}
		g.policy(m)
		m.text += "onError: {invalid: reject, unenforceable: reject, internal: reject}\n"
		d, err := decideClaims(t, m.text, nil, NewVolumes([]Volume{claimOf("wal", "db:/data/wal").limited(text).classed(rate, rate).driven(rate).sized(int64(seed))}))
		if err != nil {
			t.Errorf("rejected: %v", err)
		}
		for _, s := range d.Settings {
			if s.Source.isOfClaim() && (s.Amount > m.most(s.Key) || s.Amount < m.least(s.Key) || s.Amount < Default().Floors.of(s.Key)) {
				t.Errorf("out of bounds: %+v", s)
			}
		}
		for _, w := range d.Warnings {
			checkLine(t, w)
		}
	})
}

// TestClaimsChanged verifies that claims with other limits of their own are named, and those at other places are not.
func TestClaimsChanged(t *testing.T) {
	of := func(place string, limits ...string) *Volumes {
		var volumes []Volume
		for i := range limits {
			v := Volume{Claim: string(rune('a' + i)), Places: []Place{{Container: "db", Path: place}}}
			if limits[i] != "" {
				v.Limits = &limits[i]
			}
			volumes = append(volumes, v)
		}
		return NewVolumes(volumes)
	}
	for name, tt := range map[string]struct {
		now, former *Volumes
		want        string
	}{
		"the same":      {of("/x", "wbps=1Mi", ""), of("/y", "wbps=1Mi", ""), "[]"},
		"another limit": {of("/x", "wbps=1Mi", "wbps=1Mi"), of("/x", "wbps=1Mi", "wbps=2Mi"), "[b]"},
		"wrong":         {of("/x", "wbps=1Mi", "wpbs=1Mi"), of("/x", "wbps=1Mi", "wbps=1Mi"), "[b]"},
		"added":         {of("/x", "wbps=1Mi", "", "wbps=3Mi"), of("/x", "", ""), "[a c]"},
		"removed":       {of("/x", ""), of("/x", "wbps=1Mi", "wbps=2Mi"), "[a b]"},
		"unknown":       {of("/x", "wbps=1Mi"), nil, "[a]"},
		"unknown now":   {nil, of("/x", "wbps=1Mi"), "[a]"},
	} {
		if got := fmt.Sprint(tt.now.ChangedClaims(tt.former)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestClassStandsBelowNoted verifies that the value of a class that was chosen and is gone stands, also at an address where a higher
// value was noted that counts no more.
func TestClassStandsBelowNoted(t *testing.T) {
	const class = "classes: {shared: {limits: ['@a wbps=4Mi']}}\nrules: [{name: r, class: shared}]\n"
	chosen := map[string]string{"class.blkio.noderesource.dev/containers": "shared"}
	d := Desired{}
	for _, step := range []struct {
		policy string
		claims *Volumes
	}{
		{"", NewVolumes([]Volume{claimOf("a", "db:/data").limited("wbps=30Mi")})},
		{class, NewVolumes([]Volume{claimOf("a", "db:/data").limited("wpbs=30Mi")})},
		{class, UnknownVolumes("too many")},
		{"", NewVolumes([]Volume{claimOf("a", "db:/data")})},
	} {
		d, _ = decideAfter(t, d, step.policy, chosen, step.claims)
	}
	if diff := cmp.Diff([]string{"sdb wbps=4Mi from class shared"}, sources(d)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
