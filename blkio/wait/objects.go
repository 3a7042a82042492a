package wait

// The structures of the programs. TestStructures compares them with those of the object.

type key struct {
	Cgroup, By uint64
	Dev        uint32
	Cause, Op  uint16
}

type held struct{ Wall, Sum, Count, Bios, Last uint64 }

type waited struct{ Sum, Count uint64 }

type thread struct {
	Key          key
	Since, Pause uint64
}

type state struct{ Began, Lost uint64 }
