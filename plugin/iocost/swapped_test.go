package iocost

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// swap has another disk come under the number of vda. Without settings, the kernel has no line.
func (k *kernel) swap(model, qos string) {
	delete(k.models, vda.Dev)
	delete(k.qos, vda.Dev)
	if model != "" {
		k.set(vda.Dev, blkio.IOCostModel, model)
		k.set(vda.Dev, blkio.IOCostQOS, qos)
	}
	k.print()
}

// TestSwapped verifies that settings of a disk are not taken for settings of a later disk with the same device
// number.
func TestSwapped(t *testing.T) {
	full := Setup{Disk: vda, Identity: "diskseq 7", Enabled: true, Model: modelA, QOS: qosA}
	next := full
	next.Identity, next.Model = "diskseq 9", modelB
	none := Setup{Disk: vda, Identity: "diskseq 9", Reason: "no weight"}
	foreign := func(k *kernel) {
		k.swap("ctrl=user "+modelB.String(), "enable=1 ctrl=auto")
	}
	t.Run("another program has set the new one", func(t *testing.T) {
		k := newKernel(t)
		k.apply(full)
		foreign(k)
		k.writes = nil
		s := k.apply(next)[0]
		if !s.Works || !slices.Equal(s.Foreign, []string{blkio.IOCostModel, blkio.IOCostQOS}) || k.attribute() != "" {
			t.Errorf("%+v, the attribute is %q", s, k.attribute())
		}
		k.apply(none)
		k.want()
	})
	t.Run("no weight uses the new one", func(t *testing.T) {
		k := newKernel(t)
		k.apply(full)
		foreign(k)
		k.writes = nil
		if s := k.apply(none)[0]; !s.Works || k.attribute() != "" {
			t.Errorf("%+v, the attribute is %q", s, k.attribute())
		}
		k.want()
	})
	t.Run("the new one has no settings", func(t *testing.T) {
		k := newKernel(t)
		k.apply(full)
		k.swap("", "")
		k.writes = nil
		k.apply(next)
		k.want("io.cost.model 254:0 ctrl=user model=linear "+modelB.String(), "io.cost.qos 254:0 enable=1 ctrl=user "+qosA.String())
	})
	t.Run("a loop device with another file", func(t *testing.T) {
		k := newKernel(t)
		k.apply(full)
		k.writes = nil
		k.apply(none)
		k.want("io.cost.qos 254:0 enable=0 ctrl=auto", "io.cost.model 254:0 ctrl=auto")
	})
}

// TestSwappedAndCleared verifies that settings that another program has made on the later disk are not cleared.
// A record of a disk that had no identity still counts.
func TestSwappedAndCleared(t *testing.T) {
	full := Setup{Disk: vda, Identity: "diskseq 7", Enabled: true, Model: modelA, QOS: qosA}
	none := Setup{Disk: vda, Identity: "diskseq 7", Reason: "no weight"}
	t.Run("cleared", func(t *testing.T) {
		k := newKernel(t)
		k.apply(full)
		k.swap("ctrl=user "+modelB.String(), "enable=1 ctrl=auto")
		k.writes = nil
		for _, dryRun := range []bool{true, false} {
			steps, err := Clear(k.tree, nil, []Setup{{Disk: vda, Identity: "diskseq 9"}}, dryRun)
			if err != nil || len(steps) > 0 || (k.attribute() == "") == dryRun {
				t.Errorf("dry run %t: %q, %v, the attribute is %q", dryRun, steps, err, k.attribute())
			}
		}
		k.want()
	})
	t.Run("a record without an identity", func(t *testing.T) {
		k := newKernel(t)
		former := full
		former.Identity = ""
		k.apply(former)
		k.writes = nil
		k.apply(full)
		k.want()
		k.apply(none)
		k.want("io.cost.qos 254:0 enable=0 ctrl=auto", "io.cost.model 254:0 ctrl=auto")
	})
}
