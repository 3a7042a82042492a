package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Owner is whom an inode's writeback belongs to.
type Owner struct {
	// Cgroup is the number of the cgroup's directory in cgroupfs, which the cgroup
	// may have outlived; 0 if the inode belongs to nobody: nothing was written to
	// it since it is in memory.
	Cgroup uint64
	// Dev is the filesystem's number, as in Inode.
	Dev blkio.Dev
	// Generation tells an inode from others that had its number.
	Generation uint32
	Verdict
	// Bandwidth is the rate that the kernel takes the owner's writeback to have on
	// this disk, in pages per second; rounds are weighed by it. 0 without an owner.
	Bandwidth uint64
}

// OwnerReader reads the owners of inodes. It is safe for concurrent use.
type OwnerReader struct {
	program *ebpf.Program
	answers *ebpf.Map

	mu sync.Mutex // the program has one answer
}

// answer is what the program writes, in the order of the machine.
const (
	answerOwner      = 0
	answerGeneration = 8
	answerAverage    = 12
	answerHistory    = 14
	answerBandwidth  = 16
	answerFound      = 24 // 1 if the descriptor is a file's
	answerDev        = 28
	answerSize       = 32
)

// NewOwnerReader loads the program that reads. It takes CAP_BPF and CAP_PERFMON;
// errors are [ErrUnavailable].
func NewOwnerReader() (*OwnerReader, error) {
	l, err := loadLayout()
	if err != nil {
		return nil, err
	}
	answers, err := ebpf.NewMap(&ebpf.MapSpec{Name: "blkio_owner", Type: ebpf.Array, KeySize: 4, ValueSize: answerSize, MaxEntries: 1})
	if err != nil {
		return nil, notLoaded(err, lockdownFile)
	}
	program, err := ownerProgram(l, answers)
	if err != nil {
		answers.Close()
		return nil, err
	}
	return &OwnerReader{program: program, answers: answers}, nil
}

// Close unloads the program.
func (r *OwnerReader) Close() error { return errors.Join(r.program.Close(), r.answers.Close()) }

// Owner tells to whom the inode of an open file belongs; O_PATH will do.
//
// The program runs in this process and finds the descriptor where the kernel does,
// so it takes no look at other processes.
func (r *OwnerReader) Owner(f *os.File) (Owner, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	empty := make([]byte, answerSize)
	if err := r.answers.Put(uint32(0), empty); err != nil {
		return Owner{}, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return Owner{}, err
	}
	var runErr error
	err = conn.Control(func(fd uintptr) {
		_, runErr = r.program.Run(&ebpf.RunOptions{Context: []uint64{uint64(fd)}})
	})
	if err := errors.Join(err, runErr); err != nil {
		return Owner{}, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	answer := make([]byte, answerSize)
	if err := r.answers.Lookup(uint32(0), &answer); err != nil {
		return Owner{}, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	if answer[answerFound] == 0 {
		return Owner{}, fmt.Errorf("read the owner of %s: the kernel's structures do not match its BTF", f.Name())
	}
	order := binary.NativeEndian
	return Owner{
		Cgroup:     order.Uint64(answer[answerOwner:]),
		Dev:        fromKernelDev(order.Uint32(answer[answerDev:])),
		Generation: order.Uint32(answer[answerGeneration:]),
		Verdict:    Verdict{History: order.Uint16(answer[answerHistory:]), Average: order.Uint16(answer[answerAverage:])},
		Bandwidth:  order.Uint64(answer[answerBandwidth:]),
	}, nil
}

// ownerProgram finds the inode of a descriptor of the process that runs it. It
// can be run on demand since it is of the raw tracepoints' kind (Linux 5.10).
//
// Source: bpf_prog_test_run_raw_tp in net/bpf/test_run.c.
func ownerProgram(l *layout, answers *ebpf.Map) (*ebpf.Program, error) {
	const task, file, inode, answer = asm.R6, asm.R7, asm.R8, asm.R9
	c := &chase{layout: l}
	c.add(
		asm.LoadMem(file, asm.R1, 0, asm.DWord), // the descriptor
		asm.StoreImm(asm.RFP, stackIndex, 0, asm.Word),
	)
	c.lookup(answers, stackIndex)
	c.add(
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(answer, asm.R0),
		asm.FnGetCurrentTask.Call(),
		asm.Mov.Reg(task, asm.R0),
	)
	c.follow(task, task, "out", "task_struct", "files", "files_struct", "fdt", "fdtable", "fd")
	c.add(asm.LSh.Imm(file, 3), asm.Add.Reg(task, file))
	c.followAt(file, task, 0, "out")
	c.follow(inode, file, "out", "file", "f_inode")
	for _, f := range []struct {
		to, size int32
		field    string
	}{
		{answerGeneration, 4, "i_generation"},
		{answerAverage, 2, "i_wb_frn_avg_time"},
		{answerHistory, 2, "i_wb_frn_history"},
	} {
		c.add(asm.Mov.Reg(asm.R1, answer), asm.Add.Imm(asm.R1, f.to))
		c.read(f.size, c.offset("inode", f.field), inode, "out")
	}
	c.follow(task, inode, "out", "inode", "i_sb")
	c.add(asm.Mov.Reg(asm.R1, answer), asm.Add.Imm(asm.R1, answerDev))
	c.read(4, c.offset("super_block", "s_dev"), task, "out")
	c.add(asm.StoreImm(answer, answerFound, 1, asm.Byte))
	// Null up to here is an inode that belongs to nobody.
	c.follow(inode, inode, "out", "inode", "i_wb")
	c.add(asm.Mov.Reg(asm.R1, answer), asm.Add.Imm(asm.R1, answerBandwidth))
	c.read(8, c.offset("bdi_writeback", "avg_write_bandwidth"), inode, "out")
	c.follow(inode, inode, "out", "bdi_writeback", "memcg_css")
	c.follow(inode, inode, "out", cgroupID...)
	c.add(
		asm.StoreMem(answer, answerOwner, inode, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
	return c.loadAs(&ebpf.ProgramSpec{Name: "blkio_owner", Type: ebpf.RawTracepoint})
}
