package why

// The causes of an answer, by which programs know them.
const (
	OwnLimit       = "own-limit"       // io.max of the container
	PodLimit       = "pod-limit"       // io.max of its pod
	OtherLimit     = "other-limit"     // io.max of another cgroup
	Weight         = "share"           // io.cost: its share of the disk is used up
	Reserve        = "reserve"         // the same, and mostly what runs outside of pods uses the disk
	DirtyOfNode    = "dirty-node"      // the node has too many dirty pages
	DirtyOfCgroup  = "dirty-cgroup"    // the container has too many for its memory
	Journal        = "journal"         // a commit of the filesystem
	OtherOwner     = "other-owner"     // its file's data is queued for another container
	Predecessor    = "predecessor"     // the same, and that container has ended
	BusyDisk       = "busy-disk"       // the disk, or its queue
	Unattributed   = "unattributed"    // I/O, and nothing tells where it was
	Unseen         = "unknown"         // it waits for no I/O that is seen, but waits for a journal are not
	NothingOfDisks = "nothing-of-disk" // it does not wait for I/O
)

// Answer is why a pod, or a container, waits.
type Answer struct {
	Subject
	Seconds float64 `json:"seconds"` // measured
	// Threads is the number of threads that waited for I/O at a time, in the mean; 0 if the causes are guessed.
	Threads float64 `json:"threads"`
	// Waiting is the part of the time in which some thread waited for I/O, by the kernel's pressure stall information; nil if
	// it has none. Of a thread that waits on one CPU after another it shows a part only.
	Waiting *float64 `json:"waiting,omitempty"`
	// CPU and Memory are the parts of the time in which some thread waited for a CPU, or for memory; nil if the kernel has no
	// pressure stall information.
	CPU    *float64 `json:"cpu,omitempty"`
	Memory *float64 `json:"memory,omitempty"`
	// Guessed is true if the waits were not counted: the causes follow from rates, limits and pressure.
	Guessed bool    `json:"guessed"`
	Cause   string  `json:"cause"` // the first one's
	Text    string  `json:"text"`  // the answer in one line
	Causes  []Cause `json:"causes"`
	Disks   []Disk  `json:"disks"` // used by the target
	// Unknown are causes that this kernel does not tell, with the reasons.
	Unknown []string `json:"unknown"`
}

// Cause is a part of the time that threads waited for I/O.
type Cause struct {
	Cause string  `json:"cause"`
	Part  float64 `json:"part"`
	Disk  string  `json:"disk,omitempty"`
	// Who is the container or pod whose limit, data or I/O it is. It is not set if it is the target.
	Who    *Subject `json:"who,omitempty"`
	Limit  *Limit   `json:"limit,omitempty"`
	Beside []User   `json:"beside,omitempty"` // who else uses the disk, the most first
	Text   string   `json:"text"`
	Do     string   `json:"do"`
}

// Limit is a limit in force.
type Limit struct {
	Key   string  `json:"key"`
	Value string  `json:"value"`
	Used  float64 `json:"used"` // part of it
	// From is the annotation, class or rule that it is from; "" if this program has not set it.
	From  string `json:"from,omitempty"`
	Burst bool   `json:"burst,omitempty"` // it is a burst
}

// User is a pod that uses a disk.
type User struct {
	Subject
	Part float64 `json:"part"` // of the time that requests were at the device, or of the bytes if that is unknown
}

// Disk is the target's use of a disk.
type Disk struct {
	Disk       string  `json:"disk"`
	ReadBytes  float64 `json:"readBytes"` // per second
	WriteBytes float64 `json:"writeBytes"`
	ReadOps    float64 `json:"readOps"`
	WriteOps   float64 `json:"writeOps"`
	Limit      *Limit  `json:"limit,omitempty"` // the one that is used the most
}
