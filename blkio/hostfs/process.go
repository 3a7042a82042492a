package hostfs

import (
	"time"

	"github.com/prometheus/procfs"
)

// userHZ is the number of clock ticks of a second in procfs. The kernel's interface has this value on each architecture
// that this program runs on.
const userHZ = 100

// SinceStart returns the time since the kernel started this process, which is before the initialization of the program.
func SinceStart() (time.Duration, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	stat, err := self.Stat()
	return SinceBoot() - time.Duration(stat.Starttime)*time.Second/userHZ, err
}
