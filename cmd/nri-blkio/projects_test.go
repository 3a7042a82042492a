package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// annotated is the annotation in each file of plugin/check/testdata/projects: its kind, domain, scope, target and limit.
var annotated = regexp.MustCompile(`(limits)\.(blkio\.noderesource\.dev)/(container\.[a-z-]+): "(\S+) (wbps=50Mi)"`)

// variations are what people write in place of the annotation. $1 to $5 are its parts.
var variations = []struct{ name, text string }{
	{"right", `$0`},
	{"unit", `$1.$2/$3: "$4 wbps=50MB"`},
	{"key", `$1.$2/$3: "$4 wpbs=50Mi"`},
	{"both keys", `$1.$2/$3: "$4 wbps=50Mi wbps=9Mi"`},
	{"domain", `$1.blkio.nodersource.dev/$3: "$4 $5"`},
	{"kind", `limit.$2/$3: "$4 $5"`},
	{"scope pod", `$1.$2/pod: "$4 $5"`},
	{"each", `$1.$2/containers: "$4 $5"`},
	{"total", `$1.$2/pod-total: "$4 $5"`},
	{"rootfs", `$1.$2/$3: "rootfs $5"`},
	{"volume", `$1.$2/$3: "@cache $5"`},
	{"elsewhere", `$1.$2/$3: "/nowhere $5"`},
	{"no target", `$1.$2/$3: "$5"`},
	{"other container", `$1.$2/container.other: "$4 $5"`},
	{"floor", `$1.$2/$3: "$4 wbps=1"`},
	{"number", `weight.$2/$3: 50`},
	{"weight", `weight.$2/$3: "50"`},
	{"class", `class.$2/$3: "gold"`},
	{"template", `$1.$2/$3: "$4 wbps={{ .rate }}"`},
	{"claim", `$1.$2: "$5"`},
	{"no scope", `$1.$2: "* bps=9Mi iops=max"`},
	{"no scope, mixed", `$1.$2: "* wbps=9Mi; $5"`},
}

// project is a manifest in the shape of those that people render or write for a public project, in one variation.
type project struct{ name, text string }

func projects(t testing.TB) (out []project) {
	t.Helper()
	files, err := filepath.Glob("../../plugin/check/testdata/projects/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !annotated.Match(data) {
			t.Fatalf("%s has no annotation", file)
		}
		for _, v := range variations {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml") + ", " + v.name
			out = append(out, project{name, annotated.ReplaceAllString(string(data), v.text)})
		}
	}
	return out
}

// runCheck returns what check prints about a manifest, and its status.
func runCheck(t testing.TB, stdin string, args ...string) (text string, status exitStatus) {
	var out bytes.Buffer
	a := newApp()
	a.stdin, a.stdout, a.stderr, a.getenv = strings.NewReader(stdin), &out, &out, os.Getenv
	err := a.run(t.Context(), append([]string{"check", "--offline"}, args...))
	return out.String(), statusOf(err)
}

// TestProjects checks manifests of more than 20 public projects, each with the annotation that its users would write, and with their
// mistakes. The golden file has the status and the first line that explains it. Update it with UPDATE_SCRIPTS=1.
func TestProjects(t *testing.T) {
	const golden = "testdata/projects-want.txt"
	all, got := projects(t), &strings.Builder{}
	for _, p := range all {
		text, status := runCheck(t, p.text, "-f", "-")
		if strings.Contains(text, "a fault of this program") {
			t.Errorf("%s: %s", p.name, text)
		}
		fmt.Fprintf(got, "%s: %d, %s\n", p.name, status, explained(text))
	}
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	dir := t.TempDir()
	for i, p := range all {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), []byte(p.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	if _, status := runCheck(t, "", "-f", dir); status != exitFindings || len(all) < 500 {
		t.Errorf("%d documents: status %d", len(all), status)
	}
	t.Logf("%d documents in %s", len(all), time.Since(begin))
}

// explained returns the line that explains a status: the first error, otherwise the first warning, unknown or limit.
func explained(text string) string {
	for _, prefix := range []string{"error: ", "warning: ", "CONTAINER", "unknown: ", "nothing", "nri-blkio: ", "claims"} {
		before := ""
		for line := range strings.Lines(text) {
			if before == prefix { // the row below the head of the table
				return strings.Join(strings.Fields(line), " ")
			}
			if before, _, _ = strings.Cut(line, " "); strings.HasPrefix(line, prefix) && prefix != "CONTAINER" {
				return strings.Join(strings.Fields(line), " ")
			}
		}
	}
	return text
}
