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

// maxFields and maxBools bound the fields of a struct, those of the structs of its package that it consists of included: a helper
// struct hides a field, and removes none.
const maxFields, maxBools = 20, 2

// largeStructs are structs with more fields, each with the reason. The list may only get shorter.
var largeStructs = map[string]string{
	"policy.Policy":                 "the fields of a file",
	"plugin/record.Record":          "the fields of a record",
	"plugin/record.wire":            "the fields of a record",
	"blkio/calibrate.Calibration":   "the fields of a file",
	"blkio.keyInfo":                 "a row of a table, not state",
	"blkio/storage.BlockDevice":     "facts about a device, not state",
	"blkio/storage.DiskInfo":        "facts about a disk, not state",
	"plugin/inspect.Node":           "facts about a node, not state",
	"plugin/iocost.State":           "facts about a disk, not state",
	"plugin/enforce/plan.View":      "what a pure function takes, not state",
	"plugin/enforce/plan.Container": "what a pure function takes, not state",
	"policy.Pod":                    "what a parser returns, not state",
}

// debts are the fields and booleans of structs that have too many. A count may only get lower.
var debts = map[string][2]int{
	"plugin/node.container":      {23, 1},
	"plugin/node.snapshot":       {23, 1}, // of container
	"plugin/node.endedContainer": {25, 1}, // of snapshot
	"plugin/node.Node":           {25, 1},
	"plugin/repair.Repairer":     {41, 1},
	"plugin/repair.file":         {23, 0},
	"plugin/enforce.change":      {22, 4},
	"policy.evaluation":          {38, 4},
	"blkio/calibrate.measuring":  {21, 1},
}

// TestStructSizes counts the fields and booleans of each struct of the packages with state.
func TestStructSizes(t *testing.T) {
	large := map[string]bool{}
	for name, found := range structs(t, "plugin", "policy", "blkio") {
		fields, bools := found.size()
		most := [2]int{maxFields, maxBools}
		if debt, isDebt := debts[name]; isDebt {
			most = debt
		}
		if fields > maxFields || bools > maxBools {
			large[name] = true
			if (fields > most[0] || bools > most[1]) && largeStructs[name] == "" {
				t.Errorf("%s has %d fields and %d booleans, at most %d and %d are allowed", name, fields, bools, most[0], most[1])
			}
		}
		if debt, isDebt := debts[name]; isDebt && (fields < debt[0] || bools < debt[1]) {
			t.Errorf("%s has %d fields and %d booleans: note the lower debt", name, fields, bools)
		}
	}
	for name := range largeStructs {
		if !large[name] {
			t.Errorf("%s is not large any more: take it off the list", name)
		}
	}
	for name := range debts {
		if !large[name] {
			t.Errorf("%s is not large any more: take it off the debts", name)
		}
	}
}

// structType is a struct of a package.
type structType struct {
	*ast.StructType
	siblings map[string]structType // the structs of its package, by name
}

// structs returns the structs of the packages below some folders, each as PACKAGE.NAME.
func structs(t *testing.T, dirs ...string) map[string]structType {
	t.Helper()
	out, packages := map[string]structType{}, map[string]map[string]structType{}
	for _, dir := range dirs {
		for _, s := range sources(t, dir) {
			in := filepath.ToSlash(filepath.Dir(s.path))
			if packages[in] == nil {
				packages[in] = map[string]structType{}
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					if st, ok := spec.Type.(*ast.StructType); ok {
						found := structType{st, packages[in]}
						packages[in][spec.Name.Name], out[in+"."+spec.Name.Name] = found, found
					}
				}
				return true
			})
		}
	}
	return out
}

// size returns the number of fields and of booleans, atomic ones included, with those of the structs of the package that are fields.
func (s structType) size() (fields, bools int) {
	for _, f := range s.Fields.List {
		n, more, moreBools := max(len(f.Names), 1), 1, 0
		switch typ := f.Type.(type) {
		case *ast.Ident:
			if inner, isStruct := s.siblings[typ.Name]; isStruct {
				more, moreBools = inner.size()
			} else if typ.Name == "bool" {
				moreBools = 1
			}
		case *ast.SelectorExpr:
			if typ.Sel.Name == "Bool" { // of sync/atomic
				moreBools = 1
			}
		}
		fields, bools = fields+n*more, bools+n*moreBools
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
