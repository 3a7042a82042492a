package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuirks verifies that each row of the page of quirks names code that exists, or none.
func TestQuirks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/quirks.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 4 {
			t.Errorf("%d cells, want 4: %.80s", len(cells), line)
			continue
		}
		if rows++; strings.TrimSpace(cells[3]) == "—" {
			continue
		}
		for name := range strings.SplitSeq(cells[3], ",") {
			name = strings.Trim(name, " `")
			if _, err := os.Stat(filepath.Join(root, name)); err != nil && name != "code" {
				t.Errorf("%v: %.80s", err, line)
			}
		}
	}
	if rows < 100 {
		t.Errorf("only %d rows found", rows)
	}
}
