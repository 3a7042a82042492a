package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Writeback configures backstop, hand-over and repair.
type Writeback struct {
	// Backstop gives the pod's cgroup the sum of what its containers were
	// granted.
	Backstop bool
	// HandOver lifts the limits of a container that has ended before its
	// cgroup goes, and syncs its volumes.
	HandOver bool
	// DirtyGuard is the memory.high, in bytes, of containers that have a write
	// limit and no memory limit. 0: none.
	DirtyGuard uint64
	// Repair moves files to the writeback of their writers, where a limit is concerned.
	Repair Repair
	// Contested selects the owner of a file with several writers.
	Contested Contested
	// Budget is what Repair may take.
	Budget Budget
}

// Repair is whether files are moved to the writeback of their writers. That runs code of
// the kernel which has bugs that crash nodes, so the default depends on the kernel.
type Repair string

const (
	// RepairAuto moves files where the kernel is known to contain the corrections.
	RepairAuto Repair = "auto"
	// RepairOn moves files on any kernel.
	RepairOn Repair = "true"
	// RepairOff moves no files.
	RepairOff Repair = "false"
)

// Moves reports whether files are moved on a kernel that is, or is not, known to contain
// the corrections.
func (r Repair) Moves(corrected bool) bool { return r == RepairOn || r == RepairAuto && corrected }

// Contested is a rule for files that several write to, whose limits differ.
type Contested string

const (
	// Majority moves a file to its majority writer.
	Majority Contested = "majority"
	// Strict moves a file to the writer with the smallest limit.
	Strict Contested = "strict"
)

// Budget bounds the work of repair on the node.
type Budget struct {
	FilesPerSecond int    // that are begun with
	ExtraBps       uint64 // bytes per second that are written out early, on all disks
	CPU            int    // percent of one; the unused is saved up for ten seconds
}

// minGuard is less than which a container cannot be expected to run at all.
const minGuard = 16 << 20

func (w *Writeback) parse(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	m, err := object("writeback", raw, "backstop", "handOver", "dirtyGuard", "repair", "contested", "budget")
	if err != nil {
		return err
	}
	return cmp.Or(
		parseSwitch(m, "backstop", &w.Backstop),
		parseSwitch(m, "handOver", &w.HandOver),
		w.parseGuard(m["dirtyGuard"]),
		w.Repair.parse(m["repair"]),
		choice(m["contested"], "writeback.contested", &w.Contested, Majority, Strict),
		w.Budget.parse(m["budget"]),
	)
}

func (w *Writeback) parseGuard(raw json.RawMessage) error {
	const field = "writeback.dirtyGuard"
	var size blkio.Amount
	if err := floor(raw, field, blkio.Wbps, &size); err != nil {
		return err
	}
	if raw != nil && size < minGuard {
		return fmt.Errorf("%s: %s is too small (minimum 16Mi)", field, show(raw))
	}
	w.DirtyGuard = uint64(size)
	return nil
}

func (r *Repair) parse(raw json.RawMessage) error {
	switch string(raw) {
	case "":
	case `"auto"`:
		*r = RepairAuto
	case "true":
		*r = RepairOn
	case "false":
		*r = RepairOff
	default:
		return fmt.Errorf("writeback.repair: unknown value %s (write auto, true or false)", show(raw))
	}
	return nil
}

func parseSwitch(m map[string]json.RawMessage, name string, to *bool) error {
	if m[name] == nil || json.Unmarshal(m[name], to) == nil {
		return nil
	}
	return fmt.Errorf("writeback.%s: expected true or false, found %s", name, show(m[name]))
}

func (b *Budget) parse(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	const field = "writeback.budget"
	m, err := object(field, raw, "filesPerSecond", "extraBps", "cpu")
	if err != nil {
		return err
	}
	extra := blkio.Amount(b.ExtraBps)
	err = cmp.Or(
		whole(m["filesPerSecond"], field+".filesPerSecond", 1, 100_000, &b.FilesPerSecond),
		floor(m["extraBps"], field+".extraBps", blkio.Wbps, &extra),
		whole(m["cpu"], field+".cpu", 1, 100, &b.CPU),
	)
	if err == nil && extra < minExtra {
		err = fmt.Errorf("%s.extraBps: %s is too small (minimum 64Ki)", field, show(m["extraBps"]))
	}
	b.ExtraBps = uint64(extra)
	return err
}

// minExtra is what one vote may write out.
const minExtra = 64 << 10

// whole parses a whole number from low to high.
func whole(raw json.RawMessage, field string, low, high int, to *int) error {
	if raw == nil {
		return nil
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < low || n > high {
		return fmt.Errorf("%s: expected a whole number from %d to %d, found %s", field, low, high, show(raw))
	}
	*to = n
	return nil
}
