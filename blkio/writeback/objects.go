package writeback

// The structures of the programs. TestStructures compares them with those of the objects.

type count struct {
	Pages, Charged, Owner, Root uint64
	Dev, Generation             uint32
	First, Last                 uint64
}

type countKey struct{ Inode, Number, Writer, Memcg uint64 }

type slot struct {
	Key   countKey
	Value count
}

type answer struct {
	Owner, Bandwidth uint64
	Dev, Generation  uint32
	Average, History uint16
	Found            uint32
}
