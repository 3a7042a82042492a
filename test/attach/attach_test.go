package attach

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadSSH(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
		err      string
	}{
		{name: "as node up writes it", in: "NODE_SSH='ssh -i /c/key -p 4022 root@127.0.0.1'\n", want: []string{"ssh", "-i", "/c/key", "-p", "4022", "root@127.0.0.1"}},
		{name: "empty", err: "has no NODE_SSH"},
		{name: "no command", in: "NODE_SSH=''\n", err: "has no NODE_SSH"},
		{name: "another variable", in: "X='ssh'\n", err: "has no NODE_SSH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "node.env")
			if err := os.WriteFile(file, []byte(tt.in), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readSSH(file)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	if _, err := readSSH("absent"); err == nil || !strings.Contains(err.Error(), "make node") {
		t.Errorf("an absent file: %v", err)
	}
}

// TestRemote verifies that the words of a command arrive unchanged. A local shell takes the place of ssh, which
// passes its last argument to the node's shell.
func TestRemote(t *testing.T) {
	words := []string{"^Test(A|B)$", "it's", "a  b", "$HOME", "", `"`}
	out, err := remote(t.Context(), []string{"sh", "-c"}, append([]string{"printf", "<%s>"}, words...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "<" + strings.Join(words, "><") + ">"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestForward(t *testing.T) {
	got := forward([]string{"-test.testlogfile=/tmp/x", "-test.paniconexit0", "-test.timeout=10m0s", "-test.v=true", "-test.run=^TestErrors$", "-proof"})
	want := []string{"-test.timeout=10m0s", "-test.v=true", "-test.run=^TestErrors$", "-proof"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
