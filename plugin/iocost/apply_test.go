package iocost

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

var (
	vda = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	vdb = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

// The kernel's own values of an SSD.
var (
	autoModel = blkio.CostModel{Rbps: 488636629, RSeqIOPS: 8932, RRandIOPS: 8518, Wbps: 427891549, WSeqIOPS: 28755, WRandIOPS: 21940}
	autoQOS   = blkio.CostQOS{RLat: 250e6, WLat: 250e6, Min: 100, Max: 1000000}
)

// kernel is the root cgroup's io.cost, as ioc_qos_write and ioc_cost_model_write have it
// (block/blk-iocost.c).
type kernel struct {
	t       *testing.T
	dir     string
	tree    *cgroupfs.Hierarchy
	models  map[blkio.Dev]blkio.CostModelLine
	qos     map[blkio.Dev]blkio.CostQOSLine
	gone    map[blkio.Dev]bool
	writes  []string
	refuses string // a file
	// schedulers has those of disks, and queue the writes to queues. noQueue is the error of these.
	schedulers map[blkio.Dev]string
	queue      []string
	noQueue    error
	lowLatency string // of all disks with bfq
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{
		t: t, dir: t.TempDir(), models: map[blkio.Dev]blkio.CostModelLine{}, qos: map[blkio.Dev]blkio.CostQOSLine{}, gone: map[blkio.Dev]bool{}, schedulers: map[blkio.Dev]string{},
	}
	k.put("cgroup.controllers", "io\n")
	k.print()
	var err error
	if k.tree, err = cgroupfs.OpenFake(k.dir, cgroupfs.Fake{Write: k.write}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.tree.Close() })
	return k
}

func (k *kernel) setQueue(dev blkio.Dev, file, value string) error {
	k.queue = append(k.queue, file+" "+value)
	if file == "scheduler" && k.noQueue == nil {
		k.schedulers[dev] = value
	}
	return k.noQueue
}

func (k *kernel) put(name, text string) {
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func ctrl(isUser bool) string {
	if isUser {
		return "user"
	}
	return "auto"
}

// print replaces the contents of the files. The first write of a device adds it to both.
func (k *kernel) print() {
	var models, qos strings.Builder
	for _, dev := range slices.SortedFunc(maps.Keys(k.qos), blkio.Dev.Compare) {
		enabled := 0
		if k.qos[dev].Enabled {
			enabled = 1
		}
		fmt.Fprintf(&models, "%s ctrl=%s model=linear %s\n", dev, ctrl(k.models[dev].IsUser), k.models[dev].Model)
		fmt.Fprintf(&qos, "%s enable=%d ctrl=%s %s\n", dev, enabled, ctrl(k.qos[dev].IsUser), k.qos[dev].QOS)
	}
	k.put("io.cost.model", models.String())
	k.put("io.cost.qos", qos.String())
}

func (k *kernel) write(name, data string) error {
	name = filepath.Base(name)
	k.writes = append(k.writes, name+" "+data)
	word, rest, _ := strings.Cut(data, " ")
	dev, err := blkio.ParseDev(word)
	switch {
	case err != nil:
		return unix.EINVAL
	case k.gone[dev]:
		return unix.ENODEV
	case name == k.refuses:
		return unix.EOPNOTSUPP
	}
	k.set(dev, name, rest)
	k.print()
	return nil
}

func (k *kernel) set(dev blkio.Dev, file, pairs string) {
	if _, known := k.qos[dev]; !known {
		k.models[dev], k.qos[dev] = blkio.CostModelLine{Model: autoModel}, blkio.CostQOSLine{QOS: autoQOS}
	}
	switch file {
	case blkio.IOCostModel:
		lines, err := blkio.ParseIOCostModel(dev.String() + " " + pairs)
		if err != nil {
			k.t.Error(err)
		}
		if k.models[dev] = lines[dev]; !lines[dev].IsUser {
			k.models[dev] = blkio.CostModelLine{Model: autoModel}
		}
	case blkio.IOCostQOS:
		lines, err := blkio.ParseIOCostQOS(dev.String() + " " + pairs)
		if err != nil {
			k.t.Error(err)
		}
		line := lines[dev]
		if !line.IsUser {
			line.QOS = autoQOS
		}
		k.qos[dev] = line
	}
}

func (k *kernel) apply(wants ...Setup) []State {
	k.t.Helper()
	states, err := Apply(k.tree, cgroupfs.Cgroup.Write, k.setQueue, wants, false)
	if err != nil {
		k.t.Fatal(err)
	}
	return states
}

// want compares the writes since the last call.
func (k *kernel) want(writes ...string) {
	k.t.Helper()
	if diff := cmp.Diff(writes, k.writes); diff != "" {
		k.t.Errorf("writes: -want +got:\n%s", diff)
	}
	k.writes = nil
}

func (k *kernel) attribute() string {
	buf := make([]byte, 4096)
	n, err := unix.Getxattr(k.dir, Attribute, buf)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return string(buf[:n])
}

func TestApply(t *testing.T) {
	k := newKernel(t)
	full := Setup{Disk: vda, Enabled: true, Model: modelA, QOS: qosA}
	states := k.apply(full, Setup{Disk: vdb, Enabled: true})
	k.want("io.cost.model 254:0 ctrl=user model=linear "+modelA.String(), "io.cost.qos 254:0 enable=1 ctrl=user "+qosA.String(), "io.cost.qos 254:16 enable=1 ctrl=auto")
	for _, s := range states {
		if !s.Works || s.Err != nil || s.Foreign != nil {
			t.Errorf("%+v", s)
		}
	}
	k.apply(full, Setup{Disk: vdb, Enabled: true})
	k.want()
	// Settings that drift are restored.
	k.set(vda.Dev, blkio.IOCostModel, "ctrl=user "+modelB.String())
	k.set(vda.Dev, blkio.IOCostQOS, "enable=0 ctrl=auto")
	k.print()
	k.apply(full, Setup{Disk: vdb, Enabled: true})
	k.want("io.cost.model 254:0 ctrl=user model=linear "+modelA.String(), "io.cost.qos 254:0 enable=1 ctrl=user "+qosA.String())
	// Another model, and then none.
	changed := full
	changed.Model = modelB
	k.apply(changed, Setup{Disk: vdb, Enabled: true})
	k.want("io.cost.model 254:0 ctrl=user model=linear " + modelB.String())
	changed.Model = nil
	k.apply(changed, Setup{Disk: vdb, Enabled: true})
	k.want("io.cost.model 254:0 ctrl=auto")
	// Not wanted any more, and not named any more.
	states = k.apply(Setup{Disk: vda, Reason: "off"})
	k.want("io.cost.qos 254:0 enable=0 ctrl=auto", "io.cost.qos 254:16 enable=0 ctrl=auto")
	if states[0].Works || states[0].Err != nil || k.attribute() != "" {
		t.Errorf("%+v, the attribute is %q", states[0], k.attribute())
	}
	k.apply(Setup{Disk: vda, Reason: "off"})
	k.want()
}

// TestForeignDisabled verifies that where another program has set io.cost and left it disabled, nothing is
// written.
func TestForeignDisabled(t *testing.T) {
	k := newKernel(t)
	line := vda.Dev.String() + " enable=0 ctrl=user " + qosA.String() + "\n"
	k.put("io.cost.qos", line)
	s := k.apply(Setup{Disk: vda, Enabled: true, Model: modelA, QOS: qosA})[0]
	if s.Enabled || s.Works || !strings.Contains(s.Reason, "enable=0") || len(k.writes) > 0 {
		t.Errorf("%+v, wrote %q", s, k.writes)
	}
}

// TestForeign verifies that settings of another program stay, in each file by itself.
func TestForeign(t *testing.T) {
	k := newKernel(t)
	k.set(vda.Dev, blkio.IOCostModel, "ctrl=user "+modelB.String())
	k.set(vdb.Dev, blkio.IOCostQOS, "enable=1 ctrl=auto")
	k.print()
	want := []Setup{{Disk: vda, Enabled: true, Model: modelA}, {Disk: vdb, Enabled: true, QOS: qosA}}
	for range 2 {
		states := k.apply(want...)
		if diff := cmp.Diff([][]string{{"io.cost.model"}, {"io.cost.qos"}}, [][]string{states[0].Foreign, states[1].Foreign}); diff != "" {
			t.Error(diff)
		}
		if !states[0].Works || !states[1].Works {
			t.Errorf("%+v", states)
		}
	}
	k.want("io.cost.qos 254:0 enable=1 ctrl=auto")
	states := k.apply(Setup{Disk: vda}, Setup{Disk: vdb})
	k.want("io.cost.qos 254:0 enable=0 ctrl=auto")
	if states[0].Works || !states[1].Works {
		t.Errorf("%+v", states)
	}
}

func TestFailures(t *testing.T) {
	k := newKernel(t)
	k.refuses = blkio.IOCostQOS
	full := Setup{Disk: vda, Enabled: true, Model: modelA, QOS: qosA}
	if s := k.apply(full)[0]; s.Works || !errors.Is(s.Err, blkio.ErrNotSupported) {
		t.Errorf("%+v", s)
	}
	// The model was written, so it is recorded and goes again.
	if steps, err := Clear(k.tree, nil, nil, false); err == nil || len(steps) == 0 {
		t.Errorf("cleared %q, %v", steps, err)
	}
	k.refuses, k.writes = "", nil
	if steps, err := Clear(k.tree, nil, nil, false); err != nil || len(steps) != 2 {
		t.Errorf("cleared %q, %v", steps, err)
	}
	k.want("io.cost.qos 254:0 enable=0 ctrl=auto", "io.cost.model 254:0 ctrl=auto")
	// The settings of a removed disk are removed with it.
	k.apply(full)
	k.gone[vda.Dev] = true
	k.apply()
	if k.attribute() != "" {
		t.Errorf("the attribute is %q", k.attribute())
	}
	for _, text := range []string{"{", `{"vda": {}}`, "[]"} {
		if err := unix.Setxattr(k.dir, Attribute, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(k.tree, cgroupfs.Cgroup.Write, nil, nil, false); err == nil || !strings.Contains(err.Error(), Attribute) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := Clear(k.tree, nil, nil, false); err == nil {
			t.Errorf("%s was cleared", text)
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(k.dir, "io.cost.qos")), unix.Removexattr(k.dir, Attribute)); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(k.tree, cgroupfs.Cgroup.Write, nil, nil, false); !errors.Is(err, blkio.ErrNotSupported) {
		t.Errorf("without io.cost: %v", err)
	}
}
