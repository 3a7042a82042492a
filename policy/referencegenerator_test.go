package policy_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// source has the types of packages by their names: with the package, except for those of the first one.
type source struct {
	fset      *token.FileSet
	structs   map[string]*ast.StructType
	constants map[string][]any // the values of the constants of a string type
}

// parse parses packages, without their tests.
func parse(dirs []string) (*source, error) {
	s := &source{token.NewFileSet(), map[string]*ast.StructType{}, map[string][]any{}}
	for i, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(s.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			before := ""
			if i > 0 {
				before = file.Name.Name + "."
			}
			for _, d := range file.Decls {
				if d, ok := d.(*ast.GenDecl); ok {
					s.add(d, before)
				}
			}
		}
	}
	return s, nil
}

// add adds the types and the constants of a declaration.
func (s *source) add(d *ast.GenDecl, before string) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if st, ok := spec.Type.(*ast.StructType); ok {
				s.structs[before+spec.Name.Name] = st
			}
		case *ast.ValueSpec:
			if typ, ok := spec.Type.(*ast.Ident); ok && d.Tok == token.CONST && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					value, _ := strconv.Unquote(lit.Value) // it was parsed
					s.constants[before+typ.Name] = append(s.constants[before+typ.Name], value)
				}
			}
		}
	}
}

// generator makes the rows of the tables.
type generator struct {
	*source
	defaults map[string]any
	required map[string]bool
	tables   map[string]*table // by the name of the type
	errs     []error
}

func (g *generator) fail(text string) { g.errs = append(g.errs, errors.New(text)) }

// object adds the rows of a type that has a table, unless an object of the type was found before.
func (g *generator) object(name, at string) {
	t := g.tables[name]
	t.uses = append(t.uses, at)
	if g.structs[name] == nil {
		g.fail("no struct " + name)
		return
	}
	if len(t.uses) > 1 {
		t = &table{} // the same rows, but tables of types below it have one more use
	}
	g.fields(t, g.structs[name], at, "")
}

// fields adds the rows of a struct to a table. at is the path of the table's object, and below the path from there.
func (g *generator) fields(t *table, st *ast.StructType, at, below string) {
	for _, f := range st.Fields.List {
		name, suffix := jsonName(f), ""
		typ := f.Type
		for list := true; list; {
			switch of := typ.(type) {
			case *ast.StarExpr:
				typ = of.X
			case *ast.ArrayType:
				typ, suffix = of.Elt, suffix+"[]"
			case *ast.MapType:
				typ, suffix = of.Value, suffix+".NAME"
			default:
				list = false
			}
		}
		inside := below
		if len(f.Names) > 0 {
			t.rows = append(t.rows, g.row(f, typ, suffix, at, below+name))
			inside = below + name + suffix + "."
		}
		if typeName := text(typ); g.tables[typeName] != nil {
			g.object(typeName, at+inside)
		} else if st := g.structOf(typ); st != nil {
			g.fields(t, st, at, inside)
		}
	}
}

// structOf returns the struct that a type is; nil for another type.
func (g *generator) structOf(typ ast.Expr) *ast.StructType {
	if st, ok := typ.(*ast.StructType); ok {
		return st
	}
	return g.structs[text(typ)]
}

// row returns the row of a field. typ is its type or that of its elements.
func (g *generator) row(f *ast.Field, typ ast.Expr, suffix, at, path string) row {
	r := row{path: path}
	doc := " " + strings.Join(strings.Fields(f.Doc.Text()), " ")
	doc, r.standard, _ = strings.Cut(doc, " Default: ")
	doc, r.values, _ = strings.Cut(doc, " Values: ")
	r.meaning = strings.TrimSpace(doc)
	r.values, r.standard = strings.TrimSuffix(r.values, "."), strings.TrimSuffix(r.standard, ".")
	if r.values == "" {
		r.values = g.values(typ, suffix)
	}
	inCode := ""
	if g.required[at+path] {
		inCode = "required"
	} else if value := lookup(g.defaults, at+path); value != nil && value != "" {
		inCode = code(value)
	}
	where := g.fset.Position(f.Pos()).String() + ": " + at + path
	switch {
	case jsonName(f) == "":
		g.fail(where + ": no json tag")
	case r.meaning == "":
		g.fail(where + ": no doc comment with a meaning")
	case r.values == "":
		g.fail(where + ": the comment has no \"Values: \"")
	case inCode != "" && r.standard != "":
		g.fail(fmt.Sprintf("%s: the comment has the default %s, and the code has %s: remove that of the comment", where, r.standard, inCode))
	case inCode != "":
		r.standard = inCode
	}
	if g.structOf(typ) != nil && strings.HasPrefix(suffix, ".NAME") {
		r.path += ".NAME" // an object for each name
	}
	return r
}

// values returns the values that a type has; "" if they depend on the field.
func (g *generator) values(typ ast.Expr, suffix string) (out string) {
	isObject := g.structOf(typ) != nil
	switch name := text(typ); {
	case strings.HasPrefix(suffix, ".NAME"):
		return "an object"
	case isObject && suffix != "":
		return "a list of objects"
	case isObject:
		return "an object"
	case name == "bool":
		out = "`true`, `false`"
	default:
		out = code(g.constants[name])
	}
	if out != "" && suffix != "" {
		out = "a list of " + out
	}
	return out
}

// lookup returns the value at a path; nil for none, and for an object.
func lookup(values map[string]any, path string) any {
	name, rest, _ := strings.Cut(path, ".")
	if object, ok := values[name].(map[string]any); ok {
		return lookup(object, rest)
	}
	if rest != "" {
		return nil
	}
	return values[name]
}

// jsonName returns the name of a field in files.
func jsonName(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag, _ := strconv.Unquote(f.Tag.Value) // it was parsed
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return name
}

// text returns the name of a type; "" for a type without one.
func text(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.Ident:
		return typ.Name
	case *ast.SelectorExpr:
		return text(typ.X) + "." + typ.Sel.Name
	}
	return ""
}
