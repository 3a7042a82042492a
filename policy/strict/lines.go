package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// WithLines adds the line of each field in the file to its error. A field that is missing gets the
// line of the field that it belongs to, and none at the top level.
func WithLines(data []byte, errs field.ErrorList) field.ErrorList {
	if len(errs) == 0 {
		return nil
	}
	var root yaml.Node
	_ = yaml.Unmarshal(data, &root) // it was parsed before
	for _, err := range errs {
		if line := lineOf(&root, err.Field); line > 0 {
			err.Field = "line " + strconv.Itoa(line) + ": " + err.Field
		}
	}
	return errs
}

const (
	maxErrors = 20      // of one file; the rest is counted
	maxText   = 1 << 10 // bytes of one error
)

// Join returns one error for the errors of a file's fields, each with its line, or nil if there are none.
// It has the first 20 of them, and a long text is cut in its middle: a file can be of any size.
func Join(data []byte, errs field.ErrorList) error {
	var texts []string
	for _, err := range WithLines(data, errs[:min(len(errs), maxErrors)]) {
		if text := cut(err.Error()); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if more := len(errs) - maxErrors; more > 0 {
		texts = append(texts, "and "+strconv.Itoa(more)+" more")
	}
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return errors.New(texts[0])
	}
	return errors.New("[" + strings.Join(texts, ", ") + "]")
}

// cut cuts the middle out of a long text. The place is at its begin, and the cause at its end.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	const half = maxText/2 - len("...")
	return strings.ToValidUTF8(text[:half], "") + "..." + strings.ToValidUTF8(text[len(text)-half:], "")
}

// step is a part of a field's path: a name, or the index of an element.
var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// lineOf returns the line of a field, or of the one closest above it that is there; 0 for none.
func lineOf(root *yaml.Node, path string) (line int) {
	at := root
	for _, name := range append([]string{""}, step.FindAllString(path, -1)...) {
		if name != "" {
			if at = below(at, name, &line); at == nil {
				return line
			}
		}
		for at.Kind == yaml.DocumentNode && len(at.Content) == 1 || at.Kind == yaml.AliasNode {
			if at.Kind == yaml.AliasNode {
				at = at.Alias
			} else {
				at = at.Content[0]
			}
		}
	}
	return line
}

// below returns the value of a field or an element, and sets its line; nil if there is none.
func below(at *yaml.Node, name string, line *int) *yaml.Node {
	switch at.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(at.Content); i += 2 {
			if key := at.Content[i]; key.Value == name {
				*line = key.Line
				return at.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		i, err := strconv.Atoi(strings.Trim(name, "[]"))
		if err == nil && i < len(at.Content) {
			*line = at.Content[i].Line
			return at.Content[i]
		}
	}
	return nil
}

// pathAt returns the path of the value of a JSON text whose first token ends at an offset; nil for none.
func pathAt(text []byte, offset int64) *field.Path {
	d := json.NewDecoder(bytes.NewReader(text))
	var find func(at *field.Path) *field.Path
	find = func(at *field.Path) (found *field.Path) {
		token, err := d.Token()
		switch {
		case err != nil:
			return nil
		case d.InputOffset() == offset:
			return at
		}
		_, opens := token.(json.Delim)
		for i := 0; opens && d.More() && found == nil; i++ {
			below := at.Index(i)
			if token == json.Delim('{') {
				name, _ := d.Token() // it was decoded before
				below = at.Child(fmt.Sprint(name))
			}
			found = find(below)
		}
		if opens && found == nil {
			_, _ = d.Token() // the end
		}
		return found
	}
	return find(nil)
}
