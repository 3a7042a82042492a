package policy

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// FuzzDecisions verifies that no annotations cause a panic. Each error is one short line of printable ASCII and
// the same each time, and the kernel accepts the decided values.
func FuzzDecisions(f *testing.F) {
	for _, e := range entryErrors {
		if len(e.value) < 1000 {
			f.Add(keyDB, e.value)
			f.Add(keyTotal, e.value)
		}
	}
	for _, key := range []string{"limits.blkio.noderesource.dev", "weight.blkio.noderesource.dev/container.db", "class.blkio.noderesource.dev/containers", keyEach} {
		f.Add(key, "500")
		f.Add(key, "# all\n* wbps=20Mi; \"/a b\\\"\" riops=2k;\nrootfs wiops=max")
		f.Add(key, "@pgdata wbps=1Mi; /data rbps=1Mi; @scratch wiops=50; @wal wbps=max")
	}
	ruled := parsed(f, staged)
	f.Fuzz(func(t *testing.T, key, value string) {
		annotations := map[string]string{key: value, keyEach: value}
		r := annotation.Parse(annotations)
		p := Default()
		again := annotation.Parse(annotations)
		hostile(t, annotations)
		for _, c := range pod() {
			d, err := p.of(r).Container(c)
			if _, err2 := p.of(again).Container(c); err != nil && err.Error() != err2.Error() {
				t.Errorf("%v, then %v", err, err2)
			}
			if (err == nil) != (len(d.Errors) == 0) {
				t.Errorf("%v beside %v", err, d.Errors)
			}
			checkDesired(t, p, d)
		}
		d, _ := p.of(r).Total(pod())
		checkDesired(t, p, d)
		bounded := ruled.ForPod(batch(), r)
		d, _ = bounded.Container(db())
		for _, s := range d.Settings {
			if s.Source.Kind != FromRule && s.Key != blkio.MemoryHigh && !within(bounded, s.Value) {
				t.Errorf("out of bounds: %+v", s)
			}
		}
	})
}

func checkDesired(t *testing.T, p *Policy, d Desired) {
	t.Helper()
	if int(amount(d, blkio.Weight)) > p.Bounds.MaxWeight {
		t.Errorf("weight %d", amount(d, blkio.Weight))
	}
	for i, x := range d.Settings {
		if i > 0 && d.Settings[i-1].Compare(x.Address) >= 0 {
			t.Errorf("%+v is not after %+v", x.Address, d.Settings[i-1].Address)
		}
		if x.Source == (Source{}) || x.Key.IsRate() && d.Disks[x.Dev] == "" {
			t.Errorf("%+v from %v, disks %v", x.Value, x.Source, d.Disks)
		}
		if x.Key.IsRate() && x.Amount != blkio.Max && (x.Amount < p.Floors.of(x.Key) || x.Amount > x.Key.Most()) {
			t.Errorf("%+v is out of bounds", x.Value)
		}
	}
}

// FuzzParseFile verifies that a policy is refused or is one that can be used.
func FuzzParseFile(f *testing.F) {
	for _, s := range []string{
		"", "mode: observe", "onError: {invalid: ignore}", "floors: {bps: 64Ki, iops: 8}", "bounds: {weight: {max: 100}}", "floors:\n  bps: 1e6", "hostKernelHandlers: ['', runc]",
		"exempt: {}", "budgets: [{namespaces: ['a-*'], limits: ['* wbps=1Gi riops=max']}]", "classes: {gold: {limits: ['* rbps=500Mi']}}", "---\nmode: observe", "...\n", "mode: &a enforce", "<<: {mode: observe}",
	} {
		f.Add([]byte(fileHead + s))
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseFile(data)
		if err != nil {
			if p != nil {
				t.Errorf("a policy beside %v", err)
			}
			return
		}
		if p.Mode != ModeEnforce && p.Mode != ModeObserve {
			t.Errorf("mode %q", p.Mode)
		}
		for _, a := range []Action{p.OnError.Invalid, p.OnError.Unenforceable, p.OnError.Internal} {
			if a != Reject && a != Ignore {
				t.Errorf("action %q", a)
			}
		}
		if p.Floors.Bps < minRate || p.Floors.Bps > blkio.Wbps.Most() || p.Floors.Iops < minRate || p.Floors.Iops > blkio.Wiops.Most() {
			t.Errorf("floors %v", p.Floors)
		}
		if p.Bounds.MaxWeight < 1 || p.Bounds.MaxWeight > blkio.MaxWeight {
			t.Errorf("bounds %v", p.Bounds)
		}
	})
}
