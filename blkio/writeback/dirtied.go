package writeback

import (
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The stack of the programs, beside scratch.
const (
	stackWriter = -16
	stackIndex  = -20
	stackDev    = -24
	stackValue  = stackDev - valueSize
	stackTaken  = stackValue - 8
	stackMine   = stackTaken - 8
)

// The registers that outlive a call of the kernel, and what is in them. inode and
// folio are pointers that the verifier knows.
const (
	folio = asm.R6
	inode = asm.R7
	memcg = asm.R8
	slot  = asm.R9 // of this CPU
)

// slotSize is that of what a CPU counts at the moment: a key and a value.
const slotSize = keySize + valueSize

// countMaps are what the programs share with the observer.
type countMaps struct {
	watched *ebpf.Map // filesystems, by the kernel's device number
	// slots has the count that each CPU is at. Pages mostly come many of one file
	// after another; to find the count anew for each takes three times as long.
	slots  *ebpf.Map
	counts *ebpf.Map // those that were left for another, and flushed
	// taken is how many of these were made since the last look, and writers by which
	// cgroups.
	taken, writers *ebpf.Map
	lost           *ebpf.Map // bytes that there was no room for
}

// dirtiedProgram counts a folio that becomes dirty. It runs for each, in whoever
// writes, so what is done for all is short: the same file, writer and charge as
// the one before?
//
// Source: folio_account_dirtied in mm/page-writeback.c, which calls the tracepoint
// before it gives an inode without an owner to one. It is called with preemption
// disabled, and so is the program.
func dirtiedProgram(l *layout, m countMaps, a *alarm) (*ebpf.Program, error) {
	c := &chase{layout: l}
	c.add(
		asm.LoadMem(inode, asm.R1, 8, asm.DWord), // its mapping yet
		asm.LoadMem(folio, asm.R1, 0, asm.DWord),
		asm.JEq.Imm(inode, 0, "out"), // the verifier wants to see it, since Linux 6.13
		asm.JEq.Imm(folio, 0, "out"),
	)
	c.load(inode, inode, "address_space", "host", asm.DWord)
	c.load(memcg, folio, "folio", "memcg_data", asm.DWord)
	c.add(
		asm.And.Imm(memcg, ^7), // flags
		asm.FnGetCurrentCgroupId.Call(),
		asm.StoreMem(asm.RFP, stackWriter, asm.R0, asm.DWord),
	)
	c.slot(m.slots)

	c.differs(keyInode, inode)
	c.load(asm.R2, inode, "inode", "i_ino", asm.DWord)
	c.differs(keyNumber, asm.R2)
	c.add(asm.LoadMem(asm.R2, asm.RFP, stackWriter, asm.DWord))
	c.differs(keyWriter, asm.R2)
	c.differs(keyMemcg, memcg)
	c.add(asm.Mov.Imm(asm.R0, 0).WithSymbol("same"))
	c.widen()
	c.folioSize(memcg)
	c.add(
		asm.Mov.Reg(asm.R1, slot), asm.Add.Imm(asm.R1, keySize+valueBytes),
		asm.StoreXAdd(asm.R1, memcg, asm.DWord),
		asm.Ja.Label("out"),
	)

	c.add(asm.Mov.Imm(asm.R0, 0).WithSymbol("other"))
	c.load(asm.R1, inode, "inode", "i_sb", asm.DWord)
	c.load(asm.R1, asm.R1, "super_block", "s_dev", asm.Word)
	c.add(asm.StoreMem(asm.RFP, stackDev, asm.R1, asm.Word))
	c.lookup(m.watched, stackDev)
	c.add(asm.JEq.Imm(asm.R0, 0, "out"))
	c.flush(m)
	c.begin()
	c.ring(a)
	c.add(
		asm.Ja.Label("same"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
	return c.loadAs(&ebpf.ProgramSpec{Name: "blkio_dirtied", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "writeback_dirty_folio"})
}

// flushProgram puts what the CPU that runs it is counting where the observer can
// read it. It may interrupt the other one on its CPU, see flush.
func flushProgram(l *layout, m countMaps) (*ebpf.Program, error) {
	c := &chase{layout: l}
	c.slot(m.slots)
	c.flush(m)
	c.add(
		// So that the next page begins anew, and with it who owns the file. No
		// count is told by this field, should one be under way.
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(slot, keyInode, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
	return c.loadAs(&ebpf.ProgramSpec{Name: "blkio_flush", Type: ebpf.RawTracepoint})
}

// widen has the slot's range reach to the folio. It is a hint: who interrupts may
// see it without the folio's bytes.
func (c *chase) widen() {
	c.load(asm.R1, folio, "folio", "index", asm.DWord)
	c.add(
		asm.LoadMem(asm.R2, slot, keySize+valueFirst, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "not the first"),
		asm.StoreMem(slot, keySize+valueFirst, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, slot, keySize+valueLast, asm.DWord).WithSymbol("not the first"),
		asm.JLE.Reg(asm.R1, asm.R2, "not the last"),
		asm.StoreMem(slot, keySize+valueLast, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("not the last"),
	)
}

// slot finds this CPU's.
func (c *chase) slot(slots *ebpf.Map) {
	c.add(asm.StoreImm(asm.RFP, stackIndex, 0, asm.Word))
	c.lookup(slots, stackIndex)
	c.add(asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(slot, asm.R0))
}

// differs jumps to "other" if the slot has another value there.
func (c *chase) differs(field int16, value asm.Register) {
	c.add(asm.LoadMem(asm.R1, slot, field, asm.DWord), asm.JNE.Reg(asm.R1, value, "other"))
}

// flush adds the slot's bytes to the counts. To take them out of the slot is one
// instruction, and to add to them another: whoever interrupts sees all of them or
// none, and with none nothing else of a slot counts.
func (c *chase) flush(m countMaps) {
	const done, add, noRoom = "flushed", "add to the count", "no room"
	c.add(
		asm.Mov.Imm(asm.R1, 0),
		asm.Mov.Reg(asm.R2, slot), asm.Add.Imm(asm.R2, keySize+valueBytes),
		exchange(asm.R2, asm.R1),
		asm.JEq.Imm(asm.R1, 0, done),
		asm.StoreMem(asm.RFP, stackValue+valueBytes, asm.R1, asm.DWord),
	)
	for at := int16(valueBytes + 8); at < valueSize; at += 8 {
		c.add(asm.LoadMem(asm.R1, slot, keySize+at, asm.DWord), asm.StoreMem(asm.RFP, stackValue+at, asm.R1, asm.DWord))
	}
	c.noRange()
	find := func() {
		c.lookupOf(m.counts, 0)
		c.add(asm.JNE.Imm(asm.R0, 0, add))
	}
	find()
	c.admit(m, done, noRoom)
	c.add(
		asm.LoadMapPtr(asm.R1, m.counts.FD()),
		asm.Mov.Reg(asm.R2, slot),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stackValue),
		asm.Mov.Imm(asm.R4, 1), // BPF_NOEXIST
		asm.FnMapUpdateElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "not new"),
	)
	c.take(m, done)
	c.add(asm.Mov.Imm(asm.R0, 0).WithSymbol("not new"))
	find() // another CPU was first, or there is no room
	c.add(asm.StoreImm(asm.RFP, stackIndex, 0, asm.Word).WithSymbol(noRoom))
	c.lookup(m.lost, stackIndex)
	c.add(
		asm.JEq.Imm(asm.R0, 0, done),
		asm.LoadMem(asm.R1, asm.RFP, stackValue+valueBytes, asm.DWord),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Ja.Label(done),

		asm.LoadMem(asm.R1, asm.RFP, stackValue+valueBytes, asm.DWord).WithSymbol(add),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord), // bytes come first in a value
	)
	// CPUs that do this at a time may lose a part of the range.
	c.merge(asm.JLE, valueFirst, "first is known")
	c.merge(asm.JGE, valueLast, "last is known")
	c.add(asm.Mov.Imm(asm.R0, 0).WithSymbol(done))
}

// admit leads to the label noRoom if the slot's writer has made many counts and half
// of the room is taken: the rest is for others. How many there are stays on the
// stack, for take.
func (c *chase) admit(m countMaps, failed, noRoom string) {
	const few = "few counts"
	c.add(asm.StoreImm(asm.RFP, stackIndex, 0, asm.Word))
	c.lookup(m.taken, stackIndex)
	c.add(
		asm.JEq.Imm(asm.R0, 0, failed),
		asm.StoreMem(asm.RFP, stackTaken, asm.R0, asm.DWord),
	)
	c.lookupOf(m.writers, keyWriter)
	c.add(
		asm.StoreMem(asm.RFP, stackMine, asm.R0, asm.DWord),
		asm.JEq.Imm(asm.R0, 0, few),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.JLT.Imm(asm.R1, fewCounts, few),
		asm.LoadMem(asm.R2, asm.RFP, stackTaken, asm.DWord),
		asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord),
		asm.JGE.Imm(asm.R1, maxCounts/2, noRoom),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(few),
	)
}

// take notes one more count of the slot's writer.
func (c *chase) take(m countMaps, done string) {
	const first = "the writer's first"
	c.add(
		asm.Mov.Imm(asm.R1, 1),
		asm.LoadMem(asm.R2, asm.RFP, stackTaken, asm.DWord),
		asm.StoreXAdd(asm.R2, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stackMine, asm.DWord),
		asm.JEq.Imm(asm.R2, 0, first),
		asm.StoreXAdd(asm.R2, asm.R1, asm.DWord),
		asm.Ja.Label(done),

		asm.StoreMem(asm.RFP, scratch, asm.R1, asm.DWord).WithSymbol(first),
		asm.LoadMapPtr(asm.R1, m.writers.FD()),
		asm.Mov.Reg(asm.R2, slot), asm.Add.Imm(asm.R2, keyWriter),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, scratch),
		asm.Mov.Imm(asm.R4, 0), // BPF_ANY
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label(done),
	)
}

// lookupOf has the value of a key that is a part of the slot in R0, null if there is
// none.
func (c *chase) lookupOf(m *ebpf.Map, field int32) {
	c.add(
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, slot), asm.Add.Imm(asm.R2, field),
		asm.FnMapLookupElem.Call(),
	)
}

// merge puts an end of the range on the stack into the count that R0 points to,
// unless that reaches as far: it is to the new one as known says.
func (c *chase) merge(known asm.JumpOp, field int16, label string) {
	c.add(
		asm.LoadMem(asm.R1, asm.RFP, stackValue+field, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, field, asm.DWord),
		known.Reg(asm.R2, asm.R1, label),
		asm.StoreMem(asm.R0, field, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0).WithSymbol(label),
	)
}

// noRange empties the slot's.
func (c *chase) noRange() {
	c.add(
		asm.Mov.Imm(asm.R1, -1),
		asm.StoreMem(slot, keySize+valueFirst, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(slot, keySize+valueLast, asm.R1, asm.DWord),
	)
}

// exchange swaps src with the word that dst points to.
func exchange(dst, src asm.Register) asm.Instruction {
	x := asm.Xchg.Mem(dst, src, asm.DWord, 0)
	// cilium/ebpf v0.21.0 takes the kind of atomic operation from here, too; without
	// it this is the addition of src.
	x.Constant = int64(asm.Xchg >> 8)
	return x
}

// folioSize has the size of the folio in bytes in dst. Where the kernel does not
// tell it is that of a page.
//
// Source: folio_order in include/linux/mm.h.
func (c *chase) folioSize(dst asm.Register) {
	c.add(asm.Mov.Imm(dst, int32(os.Getpagesize())))
	order, size, ok := c.folioOrder()
	head, ok2 := c.enum("pageflags", "PG_head")
	if !ok || !ok2 {
		return
	}
	const single = "folio of one page"
	c.load(asm.R1, folio, "folio", "flags", asm.DWord)
	c.add(
		asm.RSh.Imm(asm.R1, int32(head)),
		asm.And.Imm(asm.R1, 1),
		asm.JEq.Imm(asm.R1, 0, single),
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, scratch),
	)
	c.read(int32(size.Sizeof()), order, folio, single)
	c.add(
		asm.LoadMem(asm.R1, asm.RFP, scratch, size),
		asm.And.Imm(asm.R1, 0x1f), // of a byte; it is 10 at most, or so
		asm.LSh.Reg(dst, asm.R1),
		asm.Mov.Reg(dst, dst).WithSymbol(single),
	)
}

// folioOrder is where the logarithm of a large folio's pages is: a field of its own
// up to Linux 6.5, then the low byte of one that was there before.
func (c *chase) folioOrder() (offset int32, size asm.Size, ok bool) {
	if offset, ok = c.layout.lookup("folio", "_folio_order"); ok {
		return offset, asm.Byte, true
	}
	offset, ok = c.layout.lookup("folio", "_flags_1")
	return offset, asm.DWord, ok
}

// begin has the slot, which is flushed, count another file, writer or charge.
// memcg is lost.
func (c *chase) begin() {
	c.add(
		asm.StoreMem(slot, keyInode, inode, asm.DWord),
		asm.StoreMem(slot, keyMemcg, memcg, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackWriter, asm.DWord),
		asm.StoreMem(slot, keyWriter, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackDev, asm.Word),
		asm.StoreMem(slot, keySize+valueDev, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(slot, keySize+valueCharged, asm.R1, asm.DWord),
		asm.StoreMem(slot, keySize+valueRoot, asm.R1, asm.DWord),
	)
	c.load(asm.R1, folio, "folio", "index", asm.DWord)
	c.add(
		asm.StoreMem(slot, keySize+valueFirst, asm.R1, asm.DWord),
		asm.StoreMem(slot, keySize+valueLast, asm.R1, asm.DWord),
	)
	c.load(asm.R1, inode, "inode", "i_ino", asm.DWord)
	c.add(asm.StoreMem(slot, keyNumber, asm.R1, asm.DWord))
	c.load(asm.R1, inode, "inode", "i_generation", asm.Word)
	c.add(asm.StoreMem(slot, keySize+valueGeneration, asm.R1, asm.Word))

	const nobody = "charged to nobody"
	if c.reparents() {
		c.follow(memcg, memcg, nobody, "obj_cgroup", "memcg")
	}
	c.followAt(memcg, memcg, c.offset("mem_cgroup", "css")+c.offset(cgroupID[0], cgroupID[1]), nobody)
	c.follow(memcg, memcg, nobody, cgroupID[2:]...)
	c.add(
		asm.StoreMem(slot, keySize+valueCharged, memcg, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(nobody),
	)

	tmp := memcg
	c.load(tmp, inode, "inode", "i_wb", asm.DWord)
	c.load(tmp, tmp, "bdi_writeback", "memcg_css", asm.DWord)
	for i := 0; i < len(cgroupID); i += 2 {
		c.load(tmp, tmp, cgroupID[i], cgroupID[i+1], asm.DWord)
	}
	c.add(asm.StoreMem(slot, keySize+valueOwner, tmp, asm.DWord))
	c.subvolume(tmp)
}

// subvolume fills in the btrfs subvolume of the inode: its number means nothing
// without. Where the kernel does not tell it stays 0.
//
// Source: fs/btrfs/btrfs_inode.h, btrfs_encode_fh in fs/btrfs/export.c.
func (c *chase) subvolume(tmp asm.Register) {
	self, ok := c.layout.lookup("btrfs_inode", "vfs_inode")
	root, ok2 := c.layout.lookup("btrfs_inode", "root")
	key, ok3 := c.layout.lookup("btrfs_root", "root_key")
	id, ok4 := c.layout.lookup("btrfs_key", "objectid")
	if !ok || !ok2 || !ok3 || !ok4 {
		return
	}
	const other = "not btrfs"
	c.load(asm.R1, inode, "inode", "i_sb", asm.DWord)
	c.load(asm.R1, asm.R1, "super_block", "s_magic", asm.DWord)
	c.add(
		asm.LoadImm(asm.R2, unix.BTRFS_SUPER_MAGIC, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, other),
	)
	c.followAt(tmp, inode, root-self, other)
	c.followAt(tmp, tmp, key+id, other)
	c.add(
		asm.StoreMem(slot, keySize+valueRoot, tmp, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(other),
	)
}
