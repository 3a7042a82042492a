package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds how deep JSON values may be nested. The YAML parser has a bound of its
// own.
const maxDepth = 1000

// jsonReader makes the nodes of a YAML document of JSON, with their lines. The YAML parser
// would reject JSON with escapes of surrogates, such as "\ud83d\ude00".
type jsonReader struct {
	text []byte
	dec  *json.Decoder
	read int // bytes of text whose lines are counted
	line int // of the byte at read, in the file
}

func (c chunk) parseJSON() ([]*yaml.Node, *syntaxError) {
	text := bytes.TrimPrefix(c.body(), []byte("\ufeff"))
	r := jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: c.lines + 1}
	r.dec.UseNumber()
	var out []*yaml.Node
	for {
		n, err := r.value(0)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			// The Offset of a json.SyntaxError is no place in the text: a Decoder counts in it only the bytes of some values.
			return out, &syntaxError{r.lineAt(int(r.dec.InputOffset())), err.Error()}
		case !isNull(n):
			out = append(out, n)
		}
	}
}

// value reads one value. The error is io.EOF only at the end of all values.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.lineAt(int(r.dec.InputOffset()))}
	switch v := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("more than %d levels of nested values", maxDepth)
		}
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		return n, r.fill(n, depth+1)
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// fill reads the keys and values of an object, or the values of an array, and its end.
func (r *jsonReader) fill(n *yaml.Node, depth int) error {
	for r.dec.More() {
		child, err := r.value(depth)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
	_, err := r.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// lineAt returns the line of the last byte in front of an offset. Offsets only grow.
func (r *jsonReader) lineAt(offset int) int {
	offset = min(offset, len(r.text))
	if offset > r.read {
		r.line += bytes.Count(r.text[r.read:offset], []byte("\n"))
		r.read = offset
	}
	return r.line
}
