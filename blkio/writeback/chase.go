package writeback

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// chase assembles a program that follows pointers of the kernel. The stack below
// scratch is the caller's.
type chase struct {
	*layout
	code asm.Instructions
}

const scratch = -8

func (c *chase) add(code ...asm.Instruction) { c.code = append(c.code, code...) }

// read copies size bytes of a field to the address in R1, from the structure that
// src points to; src is none of R0 to R5. A null pointer, or any other, leads to
// the label.
func (c *chase) read(size, offset int32, src asm.Register, failed string) {
	c.add(
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, src),
		asm.Add.Imm(asm.R3, offset),
		asm.FnProbeReadKernel.Call(),
		asm.JNE.Imm(asm.R0, 0, failed),
	)
}

// follow reads pointers, one after another, into dst: fields are pairs of a
// structure and a field. dst may be src, but none of R0 to R5.
func (c *chase) follow(dst, src asm.Register, failed string, fields ...string) {
	for i := 0; i+1 < len(fields); i += 2 {
		c.followAt(dst, src, c.offset(fields[i], fields[i+1]), failed)
		src = dst
	}
}

func (c *chase) followAt(dst, src asm.Register, offset int32, failed string) {
	c.add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, scratch))
	c.read(8, offset, src, failed)
	c.add(asm.LoadMem(dst, asm.RFP, scratch, asm.DWord))
}

// cgroupID are the fields from a memory cgroup's css to the number of its cgroup,
// which is that of the cgroup's directory in cgroupfs.
var cgroupID = []string{"cgroup_subsys_state", "cgroup", "cgroup", "kn", "kernfs_node", "id"}

// load reads a field through a pointer that the verifier knows; a null pointer
// reads as 0.
func (c *chase) load(dst, src asm.Register, structure, field string, size asm.Size) {
	c.add(asm.LoadMem(dst, src, int16(c.offset(structure, field)), size))
}

// lookup has the value of a key on the stack in R0, null if there is none.
func (c *chase) lookup(m *ebpf.Map, key int32) {
	c.add(
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
	)
}

// loadAs loads the program that was assembled.
func (c *chase) loadAs(spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
	if c.err != nil {
		return nil, c.err
	}
	spec.License, spec.Instructions = "GPL", c.code
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, notLoaded(err, lockdownFile)
	}
	return program, nil
}
