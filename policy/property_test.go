package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// FuzzModel verifies for a random policy and random annotations that each value is that of the model. No value
// of an annotation or of a class that one chooses is out of bounds, and equal input gives equal bytes.
func FuzzModel(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g, m := generator{rand.New(rand.NewPCG(seed, 17))}, &model{}
		g.policy(m)
		g.pod(m)
		p, err := ParseFile([]byte(fileHead + m.text))
		if err != nil {
			t.Fatal(err)
		}
		facts := &PodFacts{Namespace: "team"}
		pod, c := p.ForPod(facts, annotation.Parse(m.annotations)), db()
		c.MemoryLimited = true
		d, err := pod.Container(c)
		total, totalErr := pod.Total([]Container{c})
		again := p.ForPod(facts, annotation.Parse(m.annotations))
		d2, err2 := again.Container(c)
		total2, totalErr2 := again.Total([]Container{c})
		if one, two := fmt.Sprintf("%+v %v %+v %v", d, err, total, totalErr), fmt.Sprintf("%+v %v %+v %v", d2, err2, total2, totalErr2); one != two {
			t.Errorf("%s\nthen %s", one, two)
		}
		for _, e := range append(d.Errors, total.Errors...) {
			checkLine(t, e.Error())
		}
		m.compare(t, &d, m.asked("container.db"), m.asked("containers"), m.class())
		m.compare(t, &total, m.asked("pod-total"))
		if t.Failed() {
			t.Logf("%s\n%q", m.text, m.annotations)
		}
	})
}

// compare compares the decision with the entries of the scopes, in the order of their precedence.
func (m *model) compare(t *testing.T, d *Desired, scopes ...[]modelEntry) {
	t.Helper()
	for _, s := range d.Settings {
		k := s.Key
		if k == blkio.Weight {
			k = blkio.DiskWeight
		}
		if s.Source.Kind != FromRule && (s.Amount > m.most(k) || s.Amount < m.least(k)) {
			t.Errorf("%s is out of bounds: %+v", s.Source, s.Value)
		}
	}
	for _, disk := range []blkio.Disk{sda, sdb, sdc} {
		for _, k := range []blkio.Key{blkio.Rbps, blkio.Wbps, blkio.Riops, blkio.Wiops, blkio.DiskWeight} {
			s, found := d.Settings.Get(blkio.Address{Key: k, Dev: disk.Dev})
			if !found && k == blkio.DiskWeight {
				s, _ = d.Settings.Weight()
			}
			if want := decide(disk, k, scopes...); s.Amount != want {
				t.Errorf("%s on %s: %v from %s, want %v", k, disk.Name, s.Amount, s.Source, want)
			}
		}
	}
}

// FuzzReload verifies that a container keeps only those values after a reload that a stricter policy rejects. A
// value that is out of the new bounds was granted before and is not above that of the class. A second pass
// changes nothing.
func FuzzReload(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g, before, m := generator{rand.New(rand.NewPCG(seed, 18))}, &model{}, &model{}
		g.policy(before)
		g.policy(m)
		g.pod(m)
		r, c := annotation.Parse(m.annotations), db()
		decide := func(text string, before Desired) Desired {
			p, err := ParseFile([]byte(fileHead + text))
			if err != nil {
				t.Fatal(err)
			}
			pod := p.ForPod(&PodFacts{Namespace: "team"}, r)
			d, _ := pod.Container(c)
			pod.Carry(&d, &before, c.Name)
			return d
		}
		former, now := decide(before.text, Desired{}), decide(m.text, Desired{})
		kept := decide(m.text, former)
		for _, s := range kept.Settings {
			k := s.Key
			if k == blkio.Weight {
				k = blkio.DiskWeight
			}
			if k > blkio.DiskWeight || s.Source.Kind == FromRule || s.Amount <= m.most(k) && s.Amount >= m.least(k) {
				continue
			}
			if old, found := former.Settings.Get(s.Address); !found || old.Value != s.Value || old.Source != s.Source {
				t.Errorf("%+v is out of bounds, and was not granted: %+v", s, old)
			}
			if own, found := now.Settings.Get(s.Address); found && own.Amount < s.Amount {
				t.Errorf("%+v in place of %+v", s, own)
			}
		}
		for _, s := range now.Settings {
			if got, found := kept.Settings.Get(s.Address); !found || got.Amount > s.Amount {
				t.Errorf("%+v became %+v", s, got)
			}
		}
		again := decide(m.text, kept)
		if fmt.Sprint(again.Settings, again.Lowered) != fmt.Sprint(kept.Settings, kept.Lowered) {
			t.Errorf("%+v, then %+v", kept, again)
		}
		if t.Failed() {
			t.Logf("%s\nthen\n%s\n%q", before.text, m.text, m.annotations)
		}
	})
}
