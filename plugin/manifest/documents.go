package manifest

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chunk is the part of a manifest from one line "---" to the next.
type chunk struct {
	text  []byte
	lines int // that precede it in the file
}

// split divides a manifest at the lines "---", so that an error in one document hides no
// other. YAML takes such a line for the start of a document wherever it is, in quoted text
// and in block scalars as well. JSON strings have no line breaks.
func split(data []byte) []chunk {
	var out []chunk
	begin, first, at, line := 0, 0, 0, 0
	add := func() {
		if text := data[begin:at]; !isBlank(text) {
			out = append(out, chunk{text, first})
		}
	}
	for text := range bytes.Lines(data) {
		if isStart(text) && at > begin {
			add()
			begin, first = at, line
		}
		at, line = at+len(text), line+1
	}
	add()
	return out
}

func isStart(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// isBlank reports whether a chunk has no content: comments, directives and marks only.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		s := strings.TrimSpace(string(line))
		if isStart(line) {
			s = strings.TrimSpace(strings.TrimPrefix(s, "---"))
		}
		if s != "" && s != "..." && s[0] != '#' && s[0] != '%' {
			return false
		}
	}
	return true
}

// syntaxError is why a chunk cannot be parsed.
type syntaxError struct {
	line int // in the file, 0 if it is unknown
	text string
}

// parse returns the documents of a chunk, which are more than one after a line "..." or in
// concatenated JSON. Those in front of an error are returned with it.
func (c chunk) parse() ([]*yaml.Node, *syntaxError) {
	if !bytes.HasPrefix(bytes.TrimLeft(c.body(), " \t\r\n\ufeff"), []byte("{")) {
		return c.parseYAML()
	}
	docs, jsonErr := c.parseJSON()
	if jsonErr == nil {
		return docs, nil
	}
	yamlDocs, err := c.parseYAML()
	if err == nil {
		return yamlDocs, nil // YAML in braces
	}
	if bytes.HasPrefix(bytes.TrimSpace(c.body()), []byte("{{")) {
		return yamlDocs, err // a template, and no JSON
	}
	return docs, jsonErr
}

// body returns the text without its mark "---", of the same length.
func (c chunk) body() []byte {
	if !isStart(c.text) {
		return c.text
	}
	return append([]byte("   "), c.text[3:]...)
}

func (c chunk) parseYAML() ([]*yaml.Node, *syntaxError) {
	dec := yaml.NewDecoder(bytes.NewReader(c.text))
	var out []*yaml.Node
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, c.yamlError(err)
		}
		if len(doc.Content) == 1 && !isNull(doc.Content[0]) {
			c.shift(doc.Content[0])
			out = append(out, doc.Content[0])
		}
	}
}

// shift makes the lines of a node and the nodes below it those of the file.
func (c chunk) shift(n *yaml.Node) {
	n.Line += c.lines
	for _, child := range n.Content {
		c.shift(child)
	}
}

// yamlError takes the line out of "yaml: line 3: TEXT": the parser has it in text only.
func (c chunk) yamlError(err error) *syntaxError {
	out := &syntaxError{text: strings.TrimPrefix(err.Error(), "yaml: ")}
	if rest, ok := strings.CutPrefix(out.text, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			out.line, out.text = c.lines+line, text
		}
	}
	if strings.HasPrefix(out.text, "found character that cannot start any token") && bytes.Contains(c.text, []byte("\t")) {
		out.text += " (a tab? indent with blanks)"
	}
	if bytes.Contains(c.text, []byte("{{")) {
		out.text += " " + helmHint
	}
	return out
}

const helmHint = "(a Helm template? render it first: helm template CHART | nri-blkio check -f -)"

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }
