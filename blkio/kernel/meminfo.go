package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ReadMemTotal returns the node's usable memory in bytes from /proc/meminfo, the
// file's path. Source: Documentation/filesystems/proc.rst.
func ReadMemTotal(file string) (uint64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	total, err := parseMemTotal(f)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return total, nil
}

// parseMemTotal finds this line; its unit is KiB:
//
//	MemTotal:       32858820 kB
func parseMemTotal(r io.Reader) (uint64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:")
		if !ok {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(rest), " ")
		kib, err := strconv.ParseUint(number, 10, 54)
		if err != nil || unit != "kB" {
			return 0, fmt.Errorf("invalid line %q", lines.Text())
		}
		return kib << 10, nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, errors.New("missing line MemTotal")
}
