package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitecture verifies that each name of code and each path on the pages exists.
func TestArchitecture(t *testing.T) {
	var pages strings.Builder
	for _, name := range []string{"docs/architecture.md", "docs/glossary.md"} {
		page, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(page)
	}
	code, packages := declarations(t)
	isPath := regexp.MustCompile(`^(plugin|policy|blkio|[a-z.]+(/[A-Za-z0-9_.-]+)+)$`)
	checked := 0
	for _, word := range words(pages.String()) {
		pkg, _, qualified := strings.Cut(word, ".")
		switch {
		case isPath.MatchString(word):
			checked++
			if _, err := os.Stat(filepath.Join(root, word)); err != nil {
				t.Error(err)
			}
		case qualified && packages[pkg]:
			checked++
			if !code[word] {
				t.Errorf("no %s in the code", word)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d names found", checked)
	}
}

// words returns the texts in backquotes, and the words of the labels in diagrams.
func words(page string) (out []string) {
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	for _, m := range regexp.MustCompile(`\["([^"]+)"\]`).FindAllStringSubmatch(page, -1) {
		out = append(out, strings.FieldsFunc(m[1], func(c rune) bool { return strings.ContainsRune(" <>,:", c) })...)
	}
	return out
}

// declarations returns the names that the module declares, such as "record.Write" and
// "node.Node.apply", and the names of its packages.
func declarations(t *testing.T) (names, packages map[string]bool) {
	t.Helper()
	names, packages = map[string]bool{}, map[string]bool{}
	for _, dir := range []string{"cmd", "plugin", "policy", "blkio"} {
		for _, s := range sources(t, dir) {
			pkg := s.file.Name.Name
			packages[pkg] = true
			for _, d := range s.file.Decls {
				for _, name := range declared(d) {
					names[pkg+"."+name] = true
				}
			}
		}
	}
	return names, packages
}

// declared returns the names of a declaration: "Write" of a function, "Plugin.apply" of a
// method.
func declared(d ast.Decl) (out []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if star, isPointer := of.(*ast.StarExpr); isPointer {
			of = star.X
		}
		if generic, isGeneric := of.(*ast.IndexExpr); isGeneric {
			of = generic.X
		}
		if id, isPlain := of.(*ast.Ident); isPlain {
			return []string{id.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				out = append(out, spec.Name.Name)
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					out = append(out, id.Name)
				}
			}
		}
	}
	return out
}
