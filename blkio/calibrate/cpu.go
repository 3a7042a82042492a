package calibrate

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// processorTime returns how long the threads of this process have used processors, and have waited
// for one. It is 0 if the kernel does not count that.
func processorTime() (sum time.Duration) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	threads, _ := proc.AllThreads(os.Getpid())
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // otherwise the thread has ended
			sum += time.Duration(s.RunningNanoseconds + s.WaitingNanoseconds)
		}
	}
	return sum
}
