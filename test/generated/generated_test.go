package generated

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const before, after = "a\n<!-- what follows is written by make x -->\nold\n<!-- until here -->\nz\n",
		"a\n<!-- what follows is written by make x -->\n\nnew\n\n<!-- until here -->\nz\n"
	if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can be written again
		if err := Replace(file, "", "new\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != after {
			t.Errorf("got %q, %v, want %q", got, err, after)
		}
	}
	if err := os.WriteFile(file, []byte("a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Replace(file, "", "new"); err == nil {
		t.Error("a file without marks: no error")
	}
}

// TestReplaceOneOfSeveral verifies that only the text of the named author is replaced.
func TestReplaceOneOfSeveral(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const x, y = "<!-- what follows is written by x -->\nold\n<!-- until here -->\n",
		"<!-- what follows is written by y -->\nold\n<!-- until here -->\n"
	if err := os.WriteFile(file, []byte(x+y), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Replace(file, "y", "new"); err != nil {
		t.Fatal(err)
	}
	const want = x + "<!-- what follows is written by y -->\n\nnew\n\n<!-- until here -->\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := Replace(file, "z", "new"); err == nil {
		t.Error("an author without marks: no error")
	}
}
