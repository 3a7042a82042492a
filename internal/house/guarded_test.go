package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"strings"
)

// guarded is a package with a guard.Value.
type guarded struct {
	files    []source
	parts    map[string]bool // the types of the value and of the values that it references
	holders  map[string]bool // the types with the guard.Value, and those that embed one of them: their methods lock it
	slow     map[string]bool // the names of what logs, and of what reads and writes on the node
	problems []string
	at       *source
}

func newGuarded(files []source) *guarded {
	p := &guarded{files: files, parts: map[string]bool{}, holders: map[string]bool{}, slow: map[string]bool{}}
	for _, s := range files {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if hasValue(n.Type) {
					p.holders[n.Name.Name] = true
				}
			case *ast.Field:
				p.addSlow(n)
			}
			for _, arg := range guardArgs(n) {
				if id, ok := arg.(*ast.Ident); ok {
					p.parts[id.Name] = true
				}
			}
			return true
		})
	}
	for p.addKept() {
	}
	for p.addEmbedding() {
	}
	return p
}

// eachType calls do for each type of the package.
func (p *guarded) eachType(do func(*ast.TypeSpec)) {
	for _, s := range p.files {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				do(spec)
			}
			return true
		})
	}
}

// addSlow adds the names of a field or a parameter by which code logs, or reads and writes on the node.
func (p *guarded) addSlow(f *ast.Field) {
	switch text(deref(f.Type)) {
	case "logrus.FieldLogger", "cgroupfs.Hierarchy", "Storage":
		for _, name := range f.Names {
			p.slow[name.Name] = true
		}
	}
}

// addEmbedding adds the types that embed a holder. It returns false if there are no more.
func (p *guarded) addEmbedding() (more bool) {
	p.eachType(func(spec *ast.TypeSpec) {
		of, ok := spec.Type.(*ast.StructType)
		if !ok || p.holders[spec.Name.Name] {
			return
		}
		for _, f := range of.Fields.List {
			if len(f.Names) == 0 && p.holders[text(deref(f.Type))] {
				p.holders[spec.Name.Name], more = true, true
			}
		}
	})
	return more
}

// addKept adds the types that keep a part, and that a part has as a field: they are parts as well. It returns false if there are no
// more.
func (p *guarded) addKept() (more bool) {
	fields := map[string]bool{} // types that the fields of parts name
	p.eachType(func(spec *ast.TypeSpec) {
		if !p.parts[spec.Name.Name] {
			return
		}
		ast.Inspect(spec.Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				fields[id.Name] = true
			}
			return true
		})
	})
	p.eachType(func(spec *ast.TypeSpec) {
		if name := spec.Name.Name; fields[name] && !p.parts[name] && p.typed(spec.Type) != "" {
			p.parts[name], more = true, true
		}
	})
	return more
}

// hasValue reports whether a type has a guard.Value.
func hasValue(typ ast.Expr) (found bool) {
	ast.Inspect(typ, func(n ast.Node) bool {
		index, ok := n.(*ast.IndexExpr)
		found = found || ok && text(index.X) == "guard.Value"
		return true
	})
	return found
}

// guardArgs returns the type arguments of guard.Value or guard.Ref, nil for another node.
func guardArgs(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.IndexExpr:
		if text(n.X) == "guard.Value" {
			return []ast.Expr{n.Index}
		}
	case *ast.IndexListExpr:
		if text(n.X) == "guard.Ref" {
			return n.Indices
		}
	}
	return nil
}

func (p *guarded) report(n ast.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf("%s:%d: ", p.at.path, p.at.line(n))+fmt.Sprintf(format, args...))
}

// check returns the violations of the rules.
func (p *guarded) check() []string {
	for i := range p.files {
		p.at = &p.files[i]
		for _, d := range p.at.file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				p.checkDecl(d)
			case *ast.FuncDecl:
				p.checkFunc(d)
			}
		}
	}
	return p.problems
}

// checkDecl checks for types and variables, other than the parts, that keep a part.
func (p *guarded) checkDecl(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if name := p.typed(spec.Type); name != "" && !p.parts[spec.Name.Name] {
				p.report(spec, "%s keeps %s", spec.Name.Name, name)
			}
		case *ast.ValueSpec:
			if name := p.named(spec); name != "" {
				p.report(spec, "%s keeps %s", spec.Names[0].Name, name)
			}
		}
	}
}

// checkFunc checks for ways out of a function for a part. A function gets a part from its caller, which has the
// lock then, or has the lock itself.
func (p *guarded) checkFunc(f *ast.FuncDecl) {
	name, signature := f.Name.Name, p.typed(f.Recv)+p.typed(f.Type)
	got := p.typed(f.Recv) + p.typed(f.Type.Params)
	locks := f.Body != nil && p.locks(f.Body)
	switch {
	case locks && !p.holders[receiver(f)]:
		p.report(f, "%s locks what belongs to another type", name)
	case locks && signature != "":
		p.report(f, "%s has the lock, and has %s in its signature", name, signature)
	case locks:
		if half := localPointer(f.Type.Results); half != "" {
			p.report(f, "%s has the lock, and returns a pointer to %s", name, half)
		}
	case isConstructor(f):
	case got == "" && signature != "":
		p.report(f, "%s returns %s without having got any", name, signature)
	case got == "" && f.Body != nil:
		if part := p.named(f.Body); part != "" {
			p.report(f, "%s names %s without the lock", name, part)
		}
	}
	if f.Body == nil {
		return
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if inner, ok := n.(*ast.FuncLit); ok && p.locks(inner.Body) {
			p.report(n, "%s locks in a closure", name)
		}
		return true
	})
	if locks || got != "" {
		p.checkSection(name, f.Body)
	}
}

// receiver returns the type with the method, or "".
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return text(deref(f.Recv.List[0].Type))
}

func deref(typ ast.Expr) ast.Expr {
	if star, ok := typ.(*ast.StarExpr); ok {
		return star.X
	}
	return typ
}

// isConstructor reports whether a function makes a part that no other goroutine can have yet.
func isConstructor(f *ast.FuncDecl) bool {
	return f.Recv == nil && strings.HasPrefix(strings.ToLower(f.Name.Name), "new")
}

// checkSection checks for code that runs after the section, and for code that may be slow.
func (p *guarded) checkSection(name string, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			p.report(n, "%s has the lock, and begins what goes on without it", name)
		case *ast.CallExpr:
			if _, method := method(n); method == "AfterFunc" || method == "Go" {
				p.report(n, "%s has the lock, and begins what goes on without it", name)
			}
		case *ast.Ident:
			if p.slow[n.Name] {
				p.report(n, "%s has the lock, and names %s", name, n.Name)
			}
		}
		return true
	})
}

// locks reports whether a function locks the value, apart from the functions inside it.
func (p *guarded) locks(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			on, name := method(call)
			found = found || name == "Lock" && strings.HasSuffix(on, ".state")
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
	return found
}

// typed returns the name of a part in a type, except as a type argument of guard.Value or
// guard.Ref. A part itself counts as well as a pointer to it: its maps are not copied.
func (p *guarded) typed(n ast.Node) (found string) {
	if n == nil || n == (*ast.FieldList)(nil) {
		return ""
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field: // without its name
			found = cmp.Or(found, p.typed(n.Type))
			return false
		case *ast.IndexExpr, *ast.IndexListExpr:
			return !strings.HasPrefix(text(indexed(n)), "guard.")
		case *ast.SelectorExpr:
			return false // a type of another package
		case *ast.Ident:
			if p.parts[n.Name] {
				found = n.Name
			}
		}
		return true
	})
	return found
}

// named returns the name of a part to which a pointer type stands below a node, except as a
// type argument of guard.Value or guard.Ref.
func (p *guarded) named(n ast.Node) (found string) {
	if n == nil || n == (*ast.FieldList)(nil) {
		return ""
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr, *ast.IndexListExpr:
			return !strings.HasPrefix(text(indexed(n)), "guard.")
		case *ast.StarExpr:
			if id, ok := n.X.(*ast.Ident); ok && p.parts[id.Name] {
				found = id.Name
			}
		}
		return true
	})
	return found
}

// indexed returns the generic of an instance.
func indexed(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.IndexExpr:
		return n.X
	case *ast.IndexListExpr:
		return n.X
	}
	return nil
}

// localPointer returns the name of a type of this package to which a result is a pointer.
func localPointer(results *ast.FieldList) (found string) {
	if results == nil {
		return ""
	}
	ast.Inspect(results, func(n ast.Node) bool {
		if star, ok := n.(*ast.StarExpr); ok {
			if id, ok := star.X.(*ast.Ident); ok {
				found = id.Name
			}
		}
		return true
	})
	return found
}
