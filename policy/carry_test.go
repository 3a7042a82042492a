package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// stands returns a setting as one that stands.
func stands(s Setting) Setting {
	s.Basis = Standing
	return s
}

// TestCarry verifies that what is refused stands, and nothing else.
func TestCarry(t *testing.T) {
	const each, total = "limits/containers", "limits/pod-total"
	names := map[blkio.Dev]string{sda.Dev: sda.Name, sdb.Dev: sdb.Name}
	limits := func(list ...Setting) Desired {
		out := Desired{Settings: list, Disks: map[blkio.Dev]string{}}
		for _, s := range list {
			if s.Key.IsRate() {
				out.Disks[s.Dev] = names[s.Dev]
			}
		}
		return out
	}
	of := func(disk blkio.Disk, key blkio.Key, amount blkio.Amount, annotation string, entry int) Setting {
		return Setting{Value: set(disk, key, amount).Value, Source: from(annotation, entry, "")}
	}
	with := func(d Desired, errs []*annotation.Error) Desired {
		d.Errors = errs
		return d
	}
	warned := func(d Desired) Desired {
		d.Warnings, d.WarningKinds = []string{stillGranted}, []blkio.WarningKind{StillGranted}
		return d
	}
	refused := func(entry int) []*annotation.Error {
		return []*annotation.Error{{Identity: annotation.Identity{From: annotation.Origin{Annotation: each}, Entry: entry}}}
	}
	for name, tt := range map[string]struct {
		now, former, want Desired
	}{
		"nothing refused": {former: limits(of(sda, blkio.Wbps, 5, each, 1))},
		"nothing granted": {now: Desired{Errors: refused(1)}, want: Desired{Errors: refused(1)}},
		"the entry": {
			now:    with(limits(of(sdb, blkio.Rbps, 7, each, 1)), refused(2)),
			former: limits(of(sda, blkio.Wbps, 5, each, 2), of(sdb, blkio.Wbps, 6, each, 1)),
			want:   warned(with(limits(stands(of(sda, blkio.Wbps, 5, each, 2)), of(sdb, blkio.Rbps, 7, each, 1)), refused(2))),
		},
		"another annotation's": {
			now:    Desired{Errors: refused(1)},
			former: limits(of(sda, blkio.Wbps, 5, total, 1)),
			want:   Desired{Errors: refused(1)},
		},
		"something else holds there": {
			now:    with(limits(of(sda, blkio.Wbps, 9, each, 2)), refused(1)),
			former: limits(of(sda, blkio.Wbps, 5, each, 1)),
			want:   with(limits(of(sda, blkio.Wbps, 9, each, 2)), refused(1)),
		},
		"a weight": {
			now:    Desired{Errors: refused(0)},
			former: limits(of(blkio.Disk{}, blkio.Weight, 500, each, 0)),
			want:   warned(with(limits(stands(of(blkio.Disk{}, blkio.Weight, 500, each, 0))), refused(0))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			Default().ForPod(&PodFacts{}, nil).Carry(&tt.now, &tt.former, "db")
			if d := cmp.Diff(tt.want, tt.now); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestKeepChosenClass verifies that the limits of a class that an annotation chose stay when a stricter policy
// rejects the choice, as those of an annotation do.
func TestKeepChosenClass(t *testing.T) {
	const (
		bronze  = "classes: {bronze: {limits: ['* wbps=20Mi'], weight: 50}, gold: {limits: ['* wbps=90Mi']}}\n"
		renamed = "classes: {brass: {limits: ['* wbps=20Mi'], weight: 50}, gold: {limits: ['* wbps=80Mi']}}\n"
		kept    = "sda wbps=20971520"
	)
	each := map[string]string{keyClass + "containers": "bronze"}
	for name, tt := range map[string]struct {
		annotations map[string]string
		now, want   string
	}{
		"the same":         {each, bronze, kept},
		"without classes":  {each, "", kept},
		"renamed":          {each, renamed, kept},
		"bounds":           {each, bronze + "bounds: {max: ['* wbps=1Mi']}", kept},
		"reject":           {each, bronze + "rules: [{name: r, annotations: reject}]", kept},
		"ignore":           {each, bronze + "rules: [{name: r, annotations: ignore}]", ""},
		"named":            {map[string]string{keyClass + "container.db": "bronze"}, renamed, kept},
		"another's choice": {map[string]string{keyClass + "container.db": "gold", keyClass + "containers": "bronze"}, renamed, "sda wbps=83886080"},
	} {
		t.Run(name, func(t *testing.T) {
			r := annotation.Parse(tt.annotations)
			c := Container{Name: "db", Rootfs: on(sda), MemoryLimited: true}
			former, err := parsed(t, bronze).of(r).Container(c)
			if err != nil {
				t.Fatal(err)
			}
			d := former
			for range 2 { // the second time under the same policy, as after a restart
				p := parsed(t, tt.now).of(r)
				d, err = p.Container(c)
				p.Carry(&d, &former, "db")
				former = d
			}
			if got := strings.Join(limits(d), ","); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if isKept := err != nil && tt.want == kept; isKept != slices.Contains(d.WarningKinds, StillGranted) || isKept && amount(d, blkio.Weight) != 50 {
				t.Errorf("warnings %q, weight %d", d.Warnings, amount(d, blkio.Weight))
			}
		})
	}
}

// TestRejectReachesRunning verifies that under a rule that rejects annotations, a container that runs gets the
// class of the rule where that is lower, and keeps the rest. So does the pod as a whole.
func TestRejectReachesRunning(t *testing.T) {
	const weights = "weight.blkio.noderesource.dev/"
	r := annotation.Parse(map[string]string{
		keyEach: "rootfs wbps=10Gi wiops=8 rbps=1Mi", weights + "containers": "200", weights + "container.db": "/data/wal 900; /logs 40", keyTotal: "rootfs wbps=9Mi",
	})
	before := parsed(t, "bounds: {weight: {max: 1000}}").of(r)
	now := parsed(t, "classes: {a: {limits: ['* wbps=3Mi wiops=9'], weight: 50}}\nrules: [{name: r, class: a, annotations: reject}]").of(r)
	former, err := before.Container(db())
	if err != nil {
		t.Fatal(err)
	}
	d, err := now.Container(db())
	if err == nil {
		t.Fatal("the annotations are not rejected")
	}
	now.Carry(&d, &former, "db")
	if got := limits(d)[0]; got != "sda rbps=1048576 wbps=3145728 wiops=8" {
		t.Errorf("limits %s", got)
	}
	if w := d.Settings.IOWeight(); w.Default != 50 || w.Devices[sdc.Dev] != 0 || w.Devices[sdb.Dev] != 40 {
		t.Errorf("weights %+v", w)
	}

	granted, err := before.Total([]Container{db()})
	if err != nil {
		t.Fatal(err)
	}
	total, err := now.Total([]Container{db()})
	if e := asError(t, err); e == nil || e.From.Annotation != keyTotal || len(total.Errors) != 1 {
		t.Fatalf("%v, %v", err, total.Errors)
	}
	now.Carry(&total, &granted, "")
	if got := limits(total); len(got) != 1 || got[0] != "sda wbps=9437184" {
		t.Errorf("pod-total %v", got)
	}
}

// TestNoWarningForNothingKept verifies that a class that is lower in each value leaves nothing to warn of.
func TestNoWarningForNothingKept(t *testing.T) {
	r := annotation.Parse(map[string]string{keyEach: "rootfs wbps=10Gi"})
	former, _ := parsed(t, "").of(r).Container(db())
	p := parsed(t, "classes: {a: {limits: ['* wbps=3Mi']}}\nrules: [{name: r, class: a, annotations: reject}]").of(r)
	d, err := p.Container(db())
	p.Carry(&d, &former, "db")
	if err == nil || slices.Contains(d.WarningKinds, StillGranted) || limits(d)[0] != "sda wbps=3145728" {
		t.Errorf("%v, %v, %v", err, d.Warnings, limits(d))
	}
}

// TestLoweredReturns verifies that a granted value of an annotation returns while the policy still rejects the
// annotation. It does so when the lower class is removed, or the rule that ignored the annotation.
func TestLoweredReturns(t *testing.T) {
	r := annotation.Parse(map[string]string{keyEach: "rootfs wbps=200Mi rbps=30Mi", keyTotal: "rootfs wbps=500Mi"})
	const (
		classes = "classes: {a: {limits: ['* wbps=3Mi']}, b: {limits: ['* wbps=9Mi rbps=90Mi']}}\n"
		own     = "sda rbps=31457280 wbps=209715200"
	)
	for name, steps := range map[string][][3]string{ // policy, limits of the container, those of the pod
		"class": {
			{"", own, "sda wbps=524288000"},
			{classes + "rules: [{name: r, class: a, annotations: reject}]", "sda rbps=31457280 wbps=3145728 sdb wbps=3145728 sdc wbps=3145728", "sda wbps=524288000"},
			{classes + "rules: [{name: r, class: b, bounds: {max: ['* wbps=100Mi rbps=10Mi']}}]", "sda rbps=31457280 wbps=9437184 sdb rbps=94371840 wbps=9437184 sdc rbps=94371840 wbps=9437184", "sda wbps=524288000"},
			{"rules: [{name: r, annotations: reject}]", own, "sda wbps=524288000"},
			{"rules: [{name: r, annotations: ignore}]", "", ""},
			{classes + "rules: [{name: r, class: a, annotations: ignore}]", "sda wbps=3145728 sdb wbps=3145728 sdc wbps=3145728", ""},
			{"bounds: {max: ['* wbps=100Mi']}", own, "sda wbps=524288000"},
			{"bounds: {max: ['* wbps=300Mi']}", own, "sda wbps=524288000"},
		},
		"allowed again": {
			{"", own, "sda wbps=524288000"},
			{classes + "rules: [{name: r, class: a, annotations: reject}]", "sda rbps=31457280 wbps=3145728 sdb wbps=3145728 sdc wbps=3145728", "sda wbps=524288000"},
			{"", own, "sda wbps=524288000"},
		},
		"never granted": {
			{"rules: [{name: r, annotations: ignore}]", "", ""},
			{"rules: [{name: r, annotations: reject}]", "", ""},
		},
	} {
		var container, pod Desired
		for i, step := range steps {
			p := parsed(t, step[0]).of(r)
			c, _ := p.Container(db())
			p.Carry(&c, &container, "db")
			total, _ := p.Total([]Container{db()})
			p.Carry(&total, &pod, "")
			if got := strings.Join(limits(c), " "); got != step[1] {
				t.Errorf("%s, step %d: %q, want %q", name, i, got, step[1])
			}
			if got := strings.Join(limits(total), " "); got != step[2] {
				t.Errorf("%s, step %d: the pod has %q, want %q", name, i, got, step[2])
			}
			container, pod = c, total
		}
		if len(container.Lowered) > 0 || len(pod.Lowered) > 0 {
			t.Errorf("%s: at the end %v and %v are noted", name, container.Lowered, pod.Lowered)
		}
	}
}
