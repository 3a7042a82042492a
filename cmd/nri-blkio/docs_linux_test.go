package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/why"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// pages returns the paths of all Markdown files, relative to the module's root.
func pages(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md"}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d pages found: %q", len(files), files)
	}
	return files
}

// TestLinks verifies that each relative link leads to a file, and each anchor to a heading of it. A link is written where it stands,
// "[text](page.md)", or below, "[text]: page.md".
func TestLinks(t *testing.T) {
	for _, file := range pages(t) {
		data, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)(?:\]\(|^\[[^\]]+\]: )([^)#\s]*)(#[^)\s]*)?(?:\)|$)`).FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := filepath.Join("../..", filepath.Dir(file), m[1])
			if m[1] == "" { // an anchor of the page itself
				target = filepath.Join("../..", file)
			}
			text, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil {
				t.Errorf("%s: %v", file, statErr)
			} else if anchor := strings.TrimPrefix(m[2], "#"); anchor != "" && (info.IsDir() || err != nil || !hasHeading(string(text), anchor)) {
				t.Errorf("%s: %s has no heading %q", file, m[1], anchor)
			}
		}
	}
}

// TestPagesAreLinked verifies that docs/README.md links each page of docs.
func TestPagesAreLinked(t *testing.T) {
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pages(t) {
		name, inDocs := strings.CutPrefix(file, "docs/")
		if inDocs && name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/README.md does not link %s", name)
		}
	}
}

// TestExamples verifies that each policy, and each claim on the pages is valid, and check accepts each pod
// and workload.
func TestExamples(t *testing.T) {
	host := t.TempDir()
	if err := fakeHost(host); err != nil {
		t.Fatal(err)
	}
	manifests, policies := 0, 0
	for _, file := range pages(t) {
		data, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(data), -1) {
			switch {
			case strings.Contains(m[1], "kind: NodePolicy"):
				policies++
				if p, err := policy.ParseFile([]byte(m[1])); err != nil {
					t.Errorf("%s: %v\n%s", file, err, m[1])
				} else if warnings := p.Warnings(); len(warnings) > 0 {
					t.Errorf("%s: %q\n%s", file, warnings, m[1])
				}
			case strings.Contains(m[1], "kind: PersistentVolumeClaim"):
				text := regexp.MustCompile(`limits\.blkio\.noderesource\.dev: "(.*)"`).FindStringSubmatch(m[1])
				if text == nil {
					t.Errorf("%s: a claim without limits\n%s", file, m[1])
				} else if _, err := annotation.ParseClaim("data", text[1], 1); err != nil {
					t.Errorf("%s: %v\n%s", file, err, m[1])
				}
			case strings.Contains(m[1], "limits.blkio") && strings.Contains(m[1], "kind:"):
				manifests++
				var out strings.Builder
				a := &app{
					stdin: strings.NewReader(m[1]), stdout: &out, stderr: &out, getenv: os.Getenv,
					openCgroups: cgroupfs.OpenTree,
				}
				err := a.run(t.Context(), []string{"check", "--host-root", host, "-o", "wide", "-f", "-"})
				if text := out.String(); err != nil || !strings.Contains(text, "io.max") {
					t.Errorf("%s: %v\n%s%s", file, err, m[1], text)
				}
			}
		}
	}
	if manifests < 3 || policies < 2 {
		t.Errorf("only %d manifests and %d policies found", manifests, policies)
	}
}

// TestJSONIsDocumented verifies that the section of a command lists each field of its documents, which golden files or types have.
func TestJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/script/json.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, status, _ := strings.Cut(string(script), "-- status.json --\n")
	documents := map[string][]string{"status": {status}}
	for command, pattern := range map[string]string{"top": "../../plugin/why/testdata/top/*.json", "why": "../../plugin/why/testdata/*.json"} {
		files, _ := filepath.Glob(pattern) // the only error is a wrong pattern
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			documents[command] = append(documents[command], string(text))
		}
	}
	documents["check"] = []string{jsonFields(reflect.TypeFor[check.Report]())}
	documents["owner"] = []string{jsonFields(reflect.TypeFor[why.FileOwner]())}
	for command, texts := range documents {
		_, section, _ := strings.Cut(string(page), "\n## "+command+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		fields := map[string]bool{}
		for _, text := range texts {
			for _, m := range regexp.MustCompile(`(?m)^ +"(\w+)":`).FindAllStringSubmatch(text, -1) {
				fields[m[1]] = true
			}
		}
		if len(fields) < 8 {
			t.Errorf("%s: only the fields %v", command, fields)
		}
		for field := range fields {
			if !regexp.MustCompile("`([a-z]+\\[\\]\\.)?" + field + "`").MatchString(section) {
				t.Errorf("the section of %s does not have the field %s", command, field)
			}
		}
	}
}

// jsonFields returns a line for each field of a type, and of the types in it.
func jsonFields(of reflect.Type) (lines string) {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return ""
	}
	for f := range of.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			lines += fmt.Sprintf(" %q:\n", name)
		}
		if f.Tag.Get("json") != "-" {
			lines += jsonFields(f.Type)
		}
	}
	return lines
}

// hasHeading goes by the anchors that Markdown's renderers make of headings.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			if regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ReplaceAll(heading, " ", "-"), "") == anchor {
				return true
			}
		}
	}
	return false
}
