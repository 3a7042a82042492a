package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// source is a parsed file of the module.
type source struct {
	path string // below the root of the module
	file *ast.File
	fset *token.FileSet
}

// sources returns the files below dir without tests, and without other modules.
func sources(t *testing.T, dir string) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (rel == "test" || rel == "tools" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && rel != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		out = append(out, source{filepath.ToSlash(rel), file, fset})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatalf("no files below %s", dir)
	}
	return out
}

func (s *source) line(n ast.Node) int { return s.fset.Position(n.Pos()).Line }

// maxFields and maxBools bound the fields of a state struct.
const maxFields, maxBools = 10, 2

// largeStructs are structs with more fields, each with the reason. The list may only get
// shorter.
var largeStructs = map[string]string{
	"plugin/health.Report": "the fields of a file",
	"plugin/record.Record": "the fields of a record",
	"plugin/node.Config":   "configuration, not state",
	"policy.Policy":        "the fields of a file",
	"plugin/repair.File":   "the fields of a file",
	"blkio/storage.Mount":  "the columns of mountinfo",
	"blkio.keyInfo":        "a row of a table, not state",

	// These are a debt.
}

// TestStructSizes counts the fields and booleans of each struct of the packages with state.
func TestStructSizes(t *testing.T) {
	large := map[string]bool{}
	for _, dir := range []string{"plugin", "policy", "blkio"} {
		for _, s := range sources(t, dir) {
			ast.Inspect(s.file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				st, ok := spec.Type.(*ast.StructType)
				if !ok {
					return true
				}
				name := filepath.ToSlash(filepath.Dir(s.path)) + "." + spec.Name.Name
				if fields, bools := size(st); fields > maxFields || bools > maxBools {
					large[name] = true
					if largeStructs[name] == "" {
						t.Errorf("%s:%d: %s has %d fields and %d booleans, at most %d and %d are allowed", s.path, s.line(n), name, fields, bools, maxFields, maxBools)
					}
				}
				return true
			})
		}
	}
	for name := range largeStructs {
		if !large[name] {
			t.Errorf("%s is not large any more: take it off the list", name)
		}
	}
}

// size returns the number of fields and of booleans, atomic ones included.
func size(st *ast.StructType) (fields, bools int) {
	for _, f := range st.Fields.List {
		n := max(len(f.Names), 1)
		fields += n
		switch typ := f.Type.(type) {
		case *ast.Ident:
			if typ.Name == "bool" {
				bools += n
			}
		case *ast.SelectorExpr:
			if typ.Sel.Name == "Bool" {
				bools += n
			}
		}
	}
	return fields, bools
}

// isLock are the files of locks, whose users are verified.
var isLock = map[string]bool{"plugin/node/guard/guard.go": true}

// TestLocksAreDeferred verifies that each Lock is followed by the deferred Unlock of the same
// lock, and that no other statement unlocks.
func TestLocksAreDeferred(t *testing.T) {
	for _, s := range sources(t, ".") {
		if isLock[s.path] {
			continue
		}
		deferred := map[*ast.CallExpr]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.DeferStmt:
				deferred[n.Call] = true
			case *ast.BlockStmt:
				s.checkLocks(t, n.List)
			case *ast.CallExpr:
				if _, name := method(n); strings.HasSuffix(name, "Unlock") && !deferred[n] {
					t.Errorf("%s:%d: a lock is released by hand", s.path, s.line(n))
				}
			}
			return true
		})
	}
}

// checkLocks checks that a deferred Unlock follows each Lock of a block.
func (s *source) checkLocks(t *testing.T, block []ast.Stmt) {
	for i, stmt := range block {
		call := called(stmt)
		if call == nil {
			continue
		}
		on, name := method(call)
		if name != "Lock" && name != "RLock" {
			continue
		}
		want := strings.TrimSuffix(name, "Lock") + "Unlock"
		if i+1 < len(block) {
			if next, ok := block[i+1].(*ast.DeferStmt); ok {
				if of, unlock := method(next.Call); of == on && unlock == want {
					continue
				}
			}
		}
		t.Errorf("%s:%d: the next statement is not the deferred %s", s.path, s.line(stmt), want)
	}
}

// called returns the call that a statement consists of, or whose result it assigns; nil if it
// is another statement.
func called(stmt ast.Stmt) *ast.CallExpr {
	switch stmt := stmt.(type) {
	case *ast.ExprStmt:
		call, _ := stmt.X.(*ast.CallExpr)
		return call
	case *ast.AssignStmt:
		if len(stmt.Rhs) == 1 {
			call, _ := stmt.Rhs[0].(*ast.CallExpr)
			return call
		}
	}
	return nil
}

// method returns the receiver and the name of a method that is called.
func method(call *ast.CallExpr) (on, name string) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	return text(sel.X), sel.Sel.Name
}

// text returns the source text of a chain of names.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return ""
}
