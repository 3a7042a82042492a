package suite

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func testFolders(t *testing.T) []folder {
	t.Helper()
	all, err := foldersIn("../e2e")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func names(folders []folder) (names []string) {
	for _, f := range folders {
		names = append(names, f.name)
	}
	return names
}

// TestFolders verifies that a name stands for one test, and that some tests are marked as proofs.
func TestFolders(t *testing.T) {
	in := map[string]string{}
	all := testFolders(t)
	for _, f := range all {
		for _, test := range f.tests {
			if in[test] != "" {
				t.Errorf("%s is in %s and in %s", test, in[test], f.name)
			}
			in[test] = f.name
		}
	}
	weights := slices.IndexFunc(all, func(f folder) bool { return f.name == "weights" })
	if proofs := all[weights].proofs; !slices.Contains(proofs, "TestUnpack") || slices.Contains(proofs, "TestReserve") {
		t.Errorf("the proofs of weights are %q, want TestUnpack among them, and TestReserve not", proofs)
	}
	if _, err := foldersIn(t.TempDir()); err == nil {
		t.Error("a directory without tests is no error")
	}
}

// TestWorkflow verifies that the jobs of the workflow run each folder.
func TestWorkflow(t *testing.T) {
	data, err := os.ReadFile("../../.github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct{ Matrix struct{ Part []string } }
		}
	}
	if err := yaml.Unmarshal(data, &workflow); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(strings.Join(workflow.Jobs["e2e"].Strategy.Matrix.Part, " "))
	slices.Sort(got)
	if diff := cmp.Diff(names(testFolders(t)), got); diff != "" {
		t.Errorf("the parts of the workflow, -want +got:\n%s", diff)
	}
}

// TestWorkflows verifies that the workflows run targets that the Makefile has, and actions of a known commit: a tag can be moved.
func TestWorkflows(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	targets := regexp.MustCompile(`(?m)(?:\.ci/run|make) ([a-z0-9 ]+)$`)
	action := regexp.MustCompile(`^ *(?:- )?uses: `)
	pinned := regexp.MustCompile(`uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9.]+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := targets.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s runs no target", file)
		}
		for _, m := range found {
			for target := range strings.FieldsSeq(m[1]) {
				if !strings.Contains(string(makefile), "\n"+target+": ") {
					t.Errorf("%s runs %s, which is not in the Makefile", file, target)
				}
			}
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); action.MatchString(line) && !pinned.MatchString(line) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	all := []folder{{name: "a", tests: []string{"TestA", "TestB"}}, {name: "c", tests: []string{"TestC"}}}
	for _, tt := range []struct {
		list, run string
		want      []string
	}{
		{"", "", []string{"a", "c"}},
		{"c a", "", []string{"a", "c"}},
		{"c", "", []string{"c"}},
		{"", "^TestB$/^case|x$", []string{"a"}},
		{"", "^TestA$/a|^TestC$/c", []string{"a", "c"}},
		{"", "^(TestC|TestX)$", []string{"c"}},
		{"c", "^TestA$", nil},
		{"d", "", nil},
		{"", "TestX/TestA", nil},
		{"", "(", nil},
	} {
		got, err := choose(all, tt.list, tt.run)
		if !slices.Equal(names(got), tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("folders of %q with tests %q: %v, %v, want %v", tt.list, tt.run, names(got), err, tt.want)
		}
	}
}

// TestOuterTests verifies that brackets hide what would divide an expression.
func TestOuterTests(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "A": "A", "A/b": "A", "A/b/c|B/d": "A|B", "(A|B)/c": "(A|B)", "[/|]A/b": "[/|]A", `\(A/b|B`: `\(A|B`,
	} {
		if got := outerTests(in); got != want {
			t.Errorf("of %q the part about tests is %q, want %q", in, got, want)
		}
	}
}

// TestParts verifies that each folder is in exactly one part, and that the parts take about the same time.
func TestParts(t *testing.T) {
	all := []folder{{name: "a", tests: []string{"A"}}, {name: "b", tests: []string{"B"}}, {name: "c", tests: []string{"C1", "C2"}}, {name: "new", tests: []string{"N"}}}
	took := &times{took: map[string]time.Duration{"A": 5 * time.Second, "B": 9 * time.Second, "C1": time.Second, "C2": time.Second}}
	var got [][]string
	for _, part := range parts(all, 2, took) {
		got = append(got, names(part))
	}
	if diff := cmp.Diff([][]string{{"b", "c"}, {"a", "new"}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTimes verifies that the times of a run are those of the next one, and that a test without a time counts as
// the mean.
func TestTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times.json")
	first := times{file: file}
	if err := first.read(); err != nil {
		t.Fatal(err)
	}
	if got := first.of([]string{"A", "B"}); got != 2*time.Second {
		t.Errorf("two tests without times take %v, want 2s", got)
	}
	for _, took := range []map[string]time.Duration{{"A": 2 * time.Second, "B": time.Second}, {"B": 4 * time.Second}} {
		if err := first.add(took); err != nil {
			t.Fatal(err)
		}
	}
	next := times{file: file}
	if err := next.read(); err != nil {
		t.Fatal(err)
	}
	if got := next.of([]string{"A", "B", "new"}); got != 9*time.Second {
		t.Errorf("the tests take %v, want 9s", got)
	}
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := next.read(); err == nil {
		t.Error("a file that is not JSON: no error")
	}
}

// TestStopwatch verifies that the time of a test lasts until the next one starts, with all of its cases.
func TestStopwatch(t *testing.T) {
	w, now := newStopwatch(), time.Unix(0, 0)
	w.now = func() time.Time { return now }
	for _, text := range []string{"=== RUN   TestA\n=== RUN   Te", "stA/case\n", "    a.go:1: === RUN   TestX\n--- PASS: TestA (0.00s)\n", "=== RUN   TestB\n"} {
		if n, err := w.Write([]byte(text)); err != nil || n != len(text) {
			t.Fatal(n, err)
		}
		now = now.Add(time.Second)
	}
	w.next("")
	if diff := cmp.Diff(map[string]time.Duration{"TestA": 3 * time.Second, "TestB": time.Second}, w.took); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := w.slowest(1); got != "TestA 3s" {
		t.Errorf("the slowest is %q, want TestA", got)
	}
}
