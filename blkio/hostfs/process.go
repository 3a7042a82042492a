package hostfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the number of clock ticks of a second in procfs. The kernel's interface has this value on each architecture
// that this program runs on.
const userHZ = 100

// SinceStart returns the time since the kernel started this process, which is before the initialization of the program.
func SinceStart() (time.Duration, error) {
	const file = "/proc/self/stat"
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	started, err := parseStartTime(string(data))
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", file, err)
	}
	return SinceBoot() - started, nil
}

// parseStartTime returns the time from the boot of the node to the start of a process, by its line in proc_pid_stat(5):
//
//	1 (systemd) S 0 1 1 0 -1 4194560 84541 ... 20 0 1 0 21 ...
//
// The name, in parentheses, may contain any character. The start time is field 22, in clock ticks.
func parseStartTime(line string) (time.Duration, error) {
	_, rest, _ := strings.Cut(line[max(0, strings.LastIndexByte(line, ')')):], " ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3 // the first field after the name is the third
	if len(fields) <= startTime {
		return 0, errors.New("too few fields")
	}
	ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}
