package writeback

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// churner does random operations on a file, of all kinds that programs do, and knows the content that
// the file must have. It is a process of its own: this program, called with churnCommand.
type churner struct {
	path string
	// another is a file that is read so that its pages replace those of other files; "" for none.
	another string
	f       *os.File
	direct  *os.File
	want    []byte // content of the file
	size    int    // largest size of the file
	block   []byte // aligned, for direct I/O
	random  *rand.Rand
	done    map[string]int
}

const (
	churnCommand = "churn"
	churnBlock   = 64 << 10
)

// churn runs a churner. Its arguments are the file, the largest size of the file, the memory to
// allocate beside it, the excluded operations, separated by commas, and another file to read. It
// prints "ready" once it has the memory, begins when it gets a line, ends at the end of its standard
// input, and prints the number of each operation.
func churn(args []string) error {
	c, err := newChurner(args)
	if err != nil {
		return err
	}
	if err := c.recreate(); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := fmt.Scanln(); err != nil {
		return err
	}
	var over atomic.Bool
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); over.Store(true) }()
	for !over.Load() {
		if err := c.round(strings.Split(args[3], ",")); err != nil {
			return err
		}
	}
	if err := c.check(); err != nil {
		return err
	}
	// The file is compared once more after its pages were dropped, so that it is read from the disk.
	if err := errors.Join(c.fsync(), unix.Fadvise(int(c.f.Fd()), 0, 0, unix.FADV_DONTNEED), c.check()); err != nil {
		return fmt.Errorf("after all was dropped: %w", err)
	}
	fmt.Println(c.done)
	return nil
}

// newChurner returns a churner that has its memory.
func newChurner(args []string) (*churner, error) {
	size, err1 := strconv.Atoi(args[1])
	ballast, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	block, err := unix.Mmap(-1, 0, churnBlock+ballast, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	c := &churner{path: args[0], another: args[4], size: size, want: make([]byte, 0, size), block: block[:churnBlock], done: map[string]int{}}
	c.random = rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	return c, nil
}

// round does each operation, unless it is excluded, with its odds in 80.
func (c *churner) round(without []string) error {
	for _, op := range []struct {
		name string
		odds int
		do   func() error
	}{
		{"write", 30, c.write},
		{"mmap", 10, c.mapped},
		{"check", 10, c.check},
		{"direct write", 5, c.writeDirect},
		{"direct check", 3, c.checkDirect},
		{"truncate", 4, c.truncate},
		{"punch", 8, c.punch},
		{"fsync", 4, c.fsync},
		{"recreate", 1, c.recreate},
		{"clone", 10, c.clone},
		{"read another", 10, c.readAnother},
	} {
		if c.random.IntN(80) >= op.odds || slices.Contains(without, op.name) {
			continue
		}
		if err := c.operate(op.name, op.do); err != nil {
			return err
		}
	}
	return nil
}

// operate does an operation, and counts it.
func (c *churner) operate(name string, do func() error) error {
	// With no space nothing was done, or a part of it: what is there counts.
	if err := do(); errors.Is(err, unix.ENOSPC) {
		name += ", no space"
		if err := c.learn(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	} else if err != nil {
		return fmt.Errorf("%s, after %v: %w", name, c.done, err)
	}
	c.done[name]++
	return nil
}

// place returns a random offset and length within the largest size of the file.
func (c *churner) place() (at, n int) {
	n = 1 + c.random.IntN(churnBlock)
	return c.random.IntN(c.size - n), n
}

// put writes bytes to the expected content. A gap behind its end becomes zeros.
func (c *churner) put(at int, data []byte) {
	c.want = c.want[:max(len(c.want), at+len(data))]
	copy(c.want[at:], data)
}

func (c *churner) fill(data []byte) {
	x := c.random.Uint64()
	for i := range data {
		x = x*6364136223846793005 + 1442695040888963407
		data[i] = byte(x >> 56)
	}
}

func (c *churner) write() error {
	at, n := c.place()
	c.fill(c.block[:n])
	if _, err := c.f.WriteAt(c.block[:n], int64(at)); err != nil {
		return err
	}
	c.put(at, c.block[:n])
	return nil
}

func (c *churner) writeDirect() error {
	at, n := c.place()
	at, n = at&^4095, (n+4095)&^4095
	c.fill(c.block[:n])
	if _, err := c.direct.WriteAt(c.block[:n], int64(at)); err != nil {
		return err
	}
	c.put(at, c.block[:n])
	return nil
}

// mapped writes through a mapping. The blocks have to be allocated: without space the kernel would
// kill the process.
func (c *churner) mapped() error {
	if len(c.want) < 4096 {
		return nil
	}
	if err := unix.Fallocate(int(c.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(c.want))); err != nil {
		return err
	}
	m, err := unix.Mmap(int(c.f.Fd()), 0, len(c.want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for range 8 {
		at := c.random.IntN(len(m))
		part := m[at:min(at+1+c.random.IntN(8192), len(m))]
		c.fill(part)
		copy(c.want[at:], part)
	}
	if !bytes.Equal(m, c.want) {
		err = c.differs(m, "mapping")
	}
	return errors.Join(err, unix.Munmap(m))
}

func (c *churner) check() error { return c.checkIn(c.f, "file") }

func (c *churner) checkDirect() error { return c.checkIn(c.direct, "disk") }

func (c *churner) checkIn(f *os.File, what string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if int(st.Size) != len(c.want) {
		return fmt.Errorf("it has %d bytes, want %d", st.Size, len(c.want))
	}
	for at := 0; at < len(c.want); at += churnBlock {
		n := min(churnBlock, len(c.want)-at)
		// Not beyond the file's last block: there XFS may have set blocks aside, and fails
		// direct reads of them (Linux 6.12, "Direct I/O collision with buffered writes").
		got, err := f.ReadAt(c.block[:(n+4095)&^4095], int64(at))
		if got < n {
			return fmt.Errorf("read %d bytes at %d of %d: %w", got, at, len(c.want), err)
		}
		if !bytes.Equal(c.block[:n], c.want[at:at+n]) {
			return fmt.Errorf("block at %d: %w", at, c.differs(c.block[:n], what))
		}
	}
	return nil
}

func (c *churner) differs(got []byte, what string) error {
	return fmt.Errorf("corruption: the %s has other bytes (%d of them 0)", what, bytes.Count(got, []byte{0}))
}

func (c *churner) truncate() error {
	n := c.random.IntN(c.size)
	if err := c.f.Truncate(int64(n)); err != nil {
		return err
	}
	clear(c.want[min(n, len(c.want)):])
	c.want = c.want[:n]
	return nil
}

func (c *churner) punch() error {
	at, n := c.place()
	if at+n > len(c.want) {
		return nil
	}
	if err := unix.Fallocate(int(c.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(n)); err != nil {
		return err
	}
	clear(c.want[at : at+n])
	return nil
}

// clone creates another file of the same blocks, and compares its content after this file was written
// to again.
func (c *churner) clone() error {
	path := c.path + ".clone"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	defer os.Remove(path)
	if err := unix.IoctlFileClone(int(f.Fd()), int(c.f.Fd())); err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	want := bytes.Clone(c.want)
	if err := errors.Join(c.write(), c.fsync()); err != nil {
		return err
	}
	got, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("corruption: the clone has other bytes (%d, want %d)", len(got), len(want))
	}
	return err
}

// readAnother reads the other file, which is not in the page cache, so that all of it is charged to
// this process.
func (c *churner) readAnother() error {
	if c.another == "" {
		return nil
	}
	f, err := os.Open(c.another)
	if err != nil {
		return err
	}
	defer f.Close()
	for err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err == nil; {
		_, err = f.Read(c.block)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (c *churner) fsync() error { return c.f.Sync() }

// recreate unlinks the file and creates another one with its name. A process that has opened the old
// one by its inode number continues with the old one.
func (c *churner) recreate() (err error) {
	if c.f != nil {
		if err := os.Remove(c.path); err != nil {
			return err
		}
		c.f.Close()
		c.direct.Close()
	}
	if c.f, err = os.OpenFile(c.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	c.direct, err = os.OpenFile(c.path, os.O_RDWR|syscall.O_DIRECT, 0)
	c.want = c.want[:cap(c.want)]
	clear(c.want)
	c.want = c.want[:0]
	return err
}

// learn makes the content of the file the expected content.
func (c *churner) learn() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(c.f.Fd()), &st); err != nil {
		return err
	}
	clear(c.want[:cap(c.want)])
	c.want = c.want[:st.Size]
	if n, err := c.f.ReadAt(c.want, 0); n < len(c.want) {
		return err
	}
	return nil
}
