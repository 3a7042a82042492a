package admission

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dir = "../../deploy/admission"

// TestFiles: deploy/admission has what the tables of the grammar give.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		path := filepath.Join(dir, name)
		if os.Getenv("UPDATE_ADMISSION") != "" {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("%s differs from the tables; run UPDATE_ADMISSION=1 go test ./policy/admission: -file +tables:\n%s", path, diff)
		}
	}
}
