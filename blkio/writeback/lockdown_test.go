package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNotLoaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lockdown")
	cause := errors.New("cannot use helper bpf_probe_read#4")
	for content, locked := range map[string]bool{
		"none integrity [confidentiality]\n": true,
		"none [integrity] confidentiality\n": false,
		"[none] integrity confidentiality\n": false,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := notLoaded(cause, file)
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) || strings.Contains(err.Error(), "lockdown mode") != locked {
			t.Errorf("%q: %v", content, err)
		}
	}
	if err := notLoaded(cause, file+"/none"); !errors.Is(err, cause) || strings.Contains(err.Error(), "lockdown") {
		t.Errorf("without the file: %v", err)
	}
	denied := fmt.Errorf("creating map: %w (MEMLOCK may be too low)", fs.ErrPermission)
	if err := notLoaded(denied, file+"/none"); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "MEMLOCK") || !strings.Contains(err.Error(), "CAP_BPF") {
		t.Errorf("without capabilities: %v", err)
	}
}
