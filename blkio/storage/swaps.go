package storage

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Swap is a device or file that the kernel swaps to.
type Swap struct {
	Name string // path on the node
	File bool   // true for a file on a filesystem, false for a device
	Size uint64 // bytes
	Used uint64 // bytes
}

// ParseSwaps parses /proc/swaps:
//
//	Filename				Type		Size		Used		Priority
//	/dev/vda5                               partition	1000444		0		-2
//	(1)                                     (2)             (3)             (4)
//
//	(1) blanks, tabs, newlines and backslashes are octal: \040
//	(2) "partition", which is any device, or "file"
//	(3), (4) KiB
//
// Source: swap_show in mm/swapfile.c; proc(5).
func ParseSwaps(r io.Reader) ([]Swap, error) {
	var out []Swap
	scan := bufio.NewScanner(r)
	for n := 1; scan.Scan(); n++ {
		f := strings.Fields(scan.Text())
		if n == 1 || len(f) == 0 {
			continue // the header, with any words
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("parse swaps, line %d: %d fields", n, len(f))
		}
		size, err := strconv.ParseUint(f[2], 10, 54)
		if err != nil {
			return nil, fmt.Errorf("parse swaps, line %d: %w", n, err)
		}
		used, err := strconv.ParseUint(f[3], 10, 54)
		if err != nil {
			return nil, fmt.Errorf("parse swaps, line %d: %w", n, err)
		}
		out = append(out, Swap{Name: unescapeOctal(f[0]), File: f[1] == "file", Size: size << 10, Used: used << 10})
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read swaps: %w", err)
	}
	return out, nil
}
