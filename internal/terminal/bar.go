package terminal

import (
	"fmt"
	"strings"
)

// Bar returns a progress bar with a label, for a line of a terminal of this width:
//
//	[########            ]  40 % random reads, 4 KiB
func Bar(done float64, label string, width int) string {
	const cells = 20
	full := int(max(0, min(1, done)) * cells)
	line := fmt.Sprintf("[%s%s] %3.0f %% %s", strings.Repeat("#", full), strings.Repeat(" ", cells-full), 100*done, Escape(label))
	return Shorten(line, max(1, width-1)) // the last column would wrap the line
}

// Rewrite returns the text that replaces the current line of a terminal by another one.
func Rewrite(line string) string { return "\r\x1b[K" + line }
