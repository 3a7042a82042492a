// Package generated writes measured figures into documents.
package generated

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The part of a file that is written anew is between these lines; the first
// begins with begin and may go on.
const (
	begin = "<!-- what follows is written by "
	end   = "<!-- until here -->\n"
)

// Replace puts text between the marks of a file: the first ones whose author begins with by.
func Replace(file, by, text string) error {
	begin := begin + by
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(data), begin)
	mark, rest, ok2 := strings.Cut(rest, "\n")
	_, tail, ok3 := strings.Cut(rest, end)
	if !ok || !ok2 || !ok3 {
		return fmt.Errorf("write what was measured into %s: its marks %q, %q are not there", file, begin, end)
	}
	return os.WriteFile(file, []byte(head+begin+mark+"\n\n"+strings.TrimSpace(text)+"\n\n"+end+tail), 0o644)
}

// Commit names the commit that is tested, and says if there are changes to it.
func Commit() (string, error) {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out)), err
}
