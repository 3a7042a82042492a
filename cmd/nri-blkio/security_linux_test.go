package main

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityTests verifies that each test that docs/explanation/security.md names as the proof of a bound
// exists. TestScript/NAME is a script of plugin/node.
func TestSecurityTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	module := os.DirFS("../..")
	err = fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(module, name)
		code.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/([\\w-]+))?`").FindAllStringSubmatch(string(page), -1)
	for _, m := range named {
		if !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
			t.Errorf("there is no %s", m[1])
		}
		if m[1] != "TestScript" {
			continue
		}
		if _, err := fs.Stat(module, "plugin/node/testdata/script/"+m[2]+".txt"); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d tests found in the page", len(named))
	}
}
