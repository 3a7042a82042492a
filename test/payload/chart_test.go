package payload

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// chartOf returns what Chart.yaml has in a packaged chart.
func chartOf(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "tar", "-xzOf", file, "nri-blkio/Chart.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestArchiveChart verifies that the previous chart is that before the last change of it, committed or not, and that a
// repository without one is an error.
func TestArchiveChart(t *testing.T) {
	repository, file := t.TempDir(), filepath.Join(t.TempDir(), "chart.tgz")
	do := func(args ...string) {
		t.Helper()
		if _, err := git(t.Context(), repository, append([]string{"-c", "user.name=a", "-c", "user.email=a@b.example"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(repository, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		do("add", "-A")
		do("commit", "-q", "-m", "a")
	}
	fails := func(when string) {
		t.Helper()
		if from, err := archiveChart(t.Context(), repository, file); err == nil {
			t.Errorf("%s: an earlier chart from %s", when, from)
		}
	}
	has := func(when, want string) {
		t.Helper()
		from, err := archiveChart(t.Context(), repository, file)
		if err != nil || !strings.HasPrefix(from, "commit ") {
			t.Fatalf("%s: from %q, %v", when, from, err)
		}
		if got := chartOf(t, file); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	fails("no repository")
	do("init", "-q")
	write(chartDir+"/Chart.yaml", "one")
	commit()
	fails("the first commit of the chart")
	write(chartDir+"/Chart.yaml", "two")
	has("a change that is not committed", "one")
	commit()
	has("a change", "one")
	write("other", "x")
	commit()
	has("a commit that does not change the chart", "one")
}

// TestStoredChart verifies that the chart for a checkout without history is a chart.
func TestStoredChart(t *testing.T) {
	if got := chartOf(t, filepath.Join("..", storedChart)); !strings.Contains(got, "name: nri-blkio\n") {
		t.Errorf("Chart.yaml is\n%s", got)
	}
}
