package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources are the texts of our Go files, as far as they can print something.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{".", "../../plugin", "../../plugin/record", "../../plugin/runtimeconfig", "../../policy", "../../blkio", "../../blkio/cgroupfs", "../../blkio/storage", "../../blkio/kernel"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(data)
		}
	}
	return strings.ReplaceAll(all.String(), `\"`, `"`)
}

// Whoever looks for a message in the README must find the one that we print.
func TestReadmeMessages(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## Troubleshooting\n")
	if !found {
		t.Fatal("no section Troubleshooting")
	}
	code, theirs := sources(t), []string{"io.max: invalid argument", "permission denied"}
	messages := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 2 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			messages++
			for _, part := range regexp.MustCompile(`\.\.\.:?|: `).Split(m[1], -1) {
				if part = strings.TrimSpace(part); !strings.Contains(code, part) && !strings.Contains(strings.Join(theirs, "\n"), part) {
					t.Errorf("%q: nothing prints %q", m[1], part)
				}
			}
		}
	}
	if messages < 50 {
		t.Errorf("only %d messages found", messages)
	}
}

func TestLinks(t *testing.T) {
	for _, file := range []string{"README.md", "CHANGELOG.md", "deploy/README.md", "docs/reference/quirks.md", "docs/reference/benchmarks.md", "docs/reference/devices.md"} {
		data, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`).FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := filepath.Join("../..", filepath.Dir(file), m[1])
			text, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil {
				t.Errorf("%s: %v", file, statErr)
			} else if anchor := strings.TrimPrefix(m[2], "#"); anchor != "" && (info.IsDir() || err != nil || !hasHeading(string(text), anchor)) {
				t.Errorf("%s: %s has no heading %q", file, m[1], anchor)
			}
		}
	}
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
