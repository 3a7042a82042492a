package calibrate

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// processorTime returns how long the threads of this process have used processors, and have waited
// for one. It is 0 if the kernel does not count that.
func processorTime() time.Duration {
	return readProcessorTime(os.DirFS("/proc/self/task"))
}

// readProcessorTime adds up schedstat of all threads below a directory.
func readProcessorTime(tasks fs.FS) (sum time.Duration) {
	names, err := fs.Glob(tasks, "*/schedstat")
	if err != nil {
		return 0 // not reached: the pattern is valid
	}
	for _, name := range names {
		data, err := fs.ReadFile(tasks, name)
		if err != nil {
			continue // the thread has ended
		}
		used, waited, err := parseSchedstat(string(data))
		if err != nil {
			return 0
		}
		sum += used + waited
	}
	return sum
}

// parseSchedstat parses schedstat of a thread.
//
//	1246589 48277 12
//	(1)     (2)   (3)
//
//	(1) time on a processor, in nanoseconds
//	(2) time in the queue of a processor, in nanoseconds
//	(3) times that it got a processor
//
// Source: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
func parseSchedstat(text string) (used, waited time.Duration, err error) {
	_, err = fmt.Fscan(strings.NewReader(text), &used, &waited)
	return used, waited, err
}
