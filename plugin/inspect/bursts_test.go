package inspect

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBursts verifies that a limit that is raised to its burst is in force, with the credits of its owner, and so is the backstop
// that is raised with it, and that others are not.
func TestBursts(t *testing.T) {
	at := blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 8, Minor: 32}}
	now := time.Hour
	h := Host{Bursts: &burst.File{Path: filepath.Join(t.TempDir(), "bursts.json"), Boot: "b", Now: func() time.Duration { return now }}}
	var book burst.Book
	for second := range 41 {
		now = time.Duration(second+1) * time.Second
		book.Tick(now, func(blkio.Address) blkio.Amount { return blkio.Max }, []burst.Member{{
			Account: burst.Account{Namespace: "a", Address: at}, Cgroup: "pod1/c", Limit: 1 << 20, Burst: blkio.Burst{Rate: 3 << 20, Seconds: 80},
		}})
	}
	if err := h.Bursts.Write(&book); err != nil {
		t.Fatal(err)
	}
	value := func(cgroup, asked, inForce string) Value {
		return Value{Subject: Subject{Cgroup: cgroup}, Dev: at.Dev.String(), Key: "wbps", Asked: asked, InForce: inForce, State: ValueDrift}
	}
	backstop := func(v Value) Value {
		v.Source.Kind = policy.FromBackstop
		return v
	}
	values := []Value{
		value("pod1/c", "1Mi", "3Mi"), value("pod1/c", "1Mi", "4Mi"), backstop(value("pod1", "5Mi", "7Mi")), backstop(value("pod1", "5Mi", "8Mi")),
		value("pod1", "5Mi", "7Mi"), value("pod2/c", "1Mi", "3Mi"),
		{Key: "weight", Asked: "5", InForce: "6", State: ValueDrift},
	}
	if err := h.addBursts(values); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, v := range values {
		states = append(states, v.State)
	}
	if diff := cmp.Diff([]string{"ok", "drift", "ok", "drift", "drift", "drift", "drift"}, states); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(&Burst{"3Mi/80s", true, 0.25}, values[0].Burst); diff != "" || values[2].Burst != nil || values[5].Burst != nil {
		t.Errorf("-want +got:\n%s", diff)
	}
	h.Bursts = nil
	if err := h.addBursts(values); err != nil {
		t.Error(err)
	}
}
