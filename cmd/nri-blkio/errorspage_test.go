package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestErrorsPage verifies that each message on the page is in the code. The page has each warning, each error
// in the log, and each mistake in an annotation.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	messages, all := readMessages(t)
	// Of runc, the kernel and containerd.
	others := "io.max: invalid argument\npermission denied\nblockio disabled, refusing to set blockio class of container\n"
	listed := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 2 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			listed++
			if part := firstMissing(m[1], all+others); part != "" {
				t.Errorf("%q: nothing prints %q", m[1], part)
			}
		}
	}
	if listed < 120 || len(messages) < 90 {
		t.Errorf("only %d messages on the page and %d in the code found", listed, len(messages))
	}
	for _, m := range messages {
		if part := firstMissing(m, string(page)); part != "" && m != "nri: ..." { // the stub's own
			t.Errorf("docs/errors.md does not explain %q", m)
		}
	}
}

// firstMissing returns the first of a message's fixed parts that a text lacks.
func firstMissing(message, text string) string {
	for _, part := range regexp.MustCompile(`\.\.\.:?|: `).Split(message, -1) {
		if part = strings.TrimSpace(part); !strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// readMessages returns the messages that the page has to explain, with "..." for each
// value, and the string literals of the module.
func readMessages(t *testing.T) (messages []string, all string) {
	t.Helper()
	var literals strings.Builder
	for _, dir := range []string{".", "../../plugin", "../../policy", "../../blkio"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, isLiteral := n.(*ast.BasicLit); isLiteral {
					literals.WriteString(messageText(lit) + "\n")
				}
				if e := messageOf(n); e != nil && strings.Trim(messageText(e), ". ") != "" {
					messages = append(messages, messageText(e))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return messages, literals.String()
}

// messageOf returns the expression of a message: of a warning or an error in the log, or
// the cause of an annotation.Error.
func messageOf(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		f, isMethod := n.Fun.(*ast.SelectorExpr)
		switch {
		case !isMethod || len(n.Args) == 0:
		case slices.Contains([]string{"Warn", "Warnf", "Error"}, f.Sel.Name):
			return n.Args[0]
		case f.Sel.Name == "complain" && len(n.Args) == 3:
			return n.Args[1]
		}
	case *ast.CompositeLit:
		if name := typeName(n.Type); name != "Problem" && name != "Error" || len(n.Elts) == 0 {
			return nil
		}
		for _, e := range n.Elts {
			if field, isNamed := e.(*ast.KeyValueExpr); isNamed {
				if key, isPlain := field.Key.(*ast.Ident); isPlain && strings.EqualFold(key.Name, "cause") {
					return field.Value
				}
			}
		}
		if _, isNamed := n.Elts[0].(*ast.KeyValueExpr); !isNamed {
			return n.Elts[0]
		}
	}
	return nil
}

// typeName returns the name of a type without its package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// messageText returns an expression of strings, with "..." for each part that is not a literal.
func messageText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return regexp.MustCompile(`%[.0-9]*[a-z]`).ReplaceAllString(s, "...")
		}
	case *ast.BinaryExpr:
		return messageText(e.X) + messageText(e.Y)
	}
	return "..."
}
