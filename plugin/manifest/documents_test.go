package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestSplit(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string // LINES TEXT
	}{
		{name: "nothing"},
		{name: "one document", in: "a: b\n", want: []string{"0 a: b\n"}},
		{name: "no line end", in: "a: b", want: []string{"0 a: b"}},
		{name: "a mark first", in: "---\na: b\n", want: []string{"0 ---\na: b\n"}},
		{name: "two documents", in: "a\n---\nb\n", want: []string{"0 a\n", "1 ---\nb\n"}},
		{name: "blank documents", in: "# a\n---\n\n---\n# b\n---\nc\n---", want: []string{"5 ---\nc\n"}},
		{name: "content beside the mark", in: "--- a\n--- # b\n---\tc\n", want: []string{"0 --- a\n", "2 ---\tc\n"}},
		{name: "no mark", in: "---a\n ---\n----\n-- -\n", want: []string{"0 ---a\n ---\n----\n-- -\n"}},
		{name: "a mark that is not at the line's start", in: " ---\n", want: []string{"0  ---\n"}},
		{name: "lines of DOS", in: "a\r\n---\r\nb\r\n", want: []string{"0 a\r\n", "1 ---\r\nb\r\n"}},
		{name: "directives", in: "%YAML 1.1\n---\na\n", want: []string{"1 ---\na\n"}},
		{name: "end marks", in: "...\n---\na\n...\n", want: []string{"1 ---\na\n...\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range split([]byte(tt.in)) {
				got = append(got, fmt.Sprintf("%d %s", c.lines, c.text))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// show writes a node as text: its line, tag and content.
func show(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return fmt.Sprintf("%d%s %s", n.Line, n.ShortTag(), n.Value)
	}
	var parts []string
	for _, child := range n.Content {
		parts = append(parts, show(child))
	}
	return fmt.Sprintf("%d%s[%s]", n.Line, n.ShortTag(), strings.Join(parts, ", "))
}

// TestParse checks that JSON and YAML give the same nodes, but for the tags of numbers.
func TestParse(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"scalars of JSON", `{"a": "x", "b": 1, "c": true, "d": null, "e": 1.5e3}`, "11!!map[11!!str a, 11!!str x, 11!!str b, 11!!float 1, 11!!str c, 11!!bool true, 11!!str d, 11!!null null, 11!!str e, 11!!float 1.5e3]"},
		{"scalars of YAML", "a: x\nb: 1\nc: true\nd:\ne: 1.5e3\n", "11!!map[11!!str a, 11!!str x, 12!!str b, 12!!int 1, 13!!str c, 13!!bool true, 14!!str d, 14!!null , 15!!str e, 15!!float 1.5e3]"},
		{"lines of JSON", "\n{\n\"a\": [\n{}, [],\n\"b\"\n]}\n", "12!!map[13!!str a, 13!!seq[14!!map[], 14!!seq[], 15!!str b]]"},
		{"lines of YAML", "\na:\n- {}\n- [x,\n  y]\n", "12!!map[12!!str a, 13!!seq[13!!map[], 14!!seq[14!!str x, 15!!str y]]]"},
		{"a mark in front of JSON", "---\n{\"a\": \"\\ud83d\\ude00\"}", "12!!map[12!!str a, 12!!str 😀]"},
		{"concatenated JSON", "{} {}\n{}", "11!!map[] 11!!map[] 12!!map[]"},
		{"null and an object", "null\n--- \n", ""},
		{"null between objects of JSON", "{} null {}", "11!!map[] 11!!map[]"},
		{"braces of YAML", "{a: b}", "11!!map[11!!str a, 11!!str b]"},
		{"several documents of one chunk", "a: b\n...\n%YAML 1.1\n", "11!!map[11!!str a, 11!!str b]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := chunk{[]byte(tt.in), 10}.parse()
			var got []string
			for _, n := range docs {
				got = append(got, show(n))
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("got  %s (%v)\nwant %s", text, err, tt.want)
			}
		})
	}
}

func TestYAMLError(t *testing.T) {
	c := chunk{text: []byte("x"), lines: 10}
	for in, want := range map[string]syntaxError{
		"yaml: line 3: bad": {13, "bad"},
		"yaml: bad":         {0, "bad"},
		"line x: bad":       {0, "line x: bad"},
		"yaml: line 3":      {13, ""},
	} {
		if got := *c.yamlError(errors.New(in)); got != want {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
}

// TestJSONErrors verifies that JSON that ends early is an error, with the documents before it.
func TestJSONErrors(t *testing.T) {
	deep := strings.Repeat(`{"a":`, maxDepth+1)
	for _, tt := range []struct {
		in   string
		docs int
		line int
		text string
	}{
		{"{", 0, 1, "unexpected EOF"},
		{`{"a":`, 0, 1, "unexpected EOF"},
		{"{}\n{\"a\": 1", 1, 2, "unexpected EOF"},
		{"{\"a\":\n\nx}", 0, 3, "invalid character 'x' looking for beginning of value"},
		{"{\"a\":\n 1,\n", 0, 2, "unexpected EOF"}, // the line of the last value
		{"{\"a\": [\n\n", 0, 1, "unexpected EOF"},
		{"{}\n{\"a\": \"x", 1, 2, "unexpected EOF"},
		{"{\n\"a\": 1,\n\n\"b\": x: }\n", 0, 4, "invalid character 'x' looking for beginning of value"},
		{"{}\n{}\n\n{\"a\" \"b\"}\n{}", 2, 4, "invalid character '\"' after object key"},
		{strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth), 1, 0, ""},
		{"{}\n" + deep, 1, 2, "more than 1000 levels of nested values"},
	} {
		docs, err := chunk{text: []byte(tt.in)}.parseJSON()
		got := syntaxError{}
		if err != nil {
			got = *err
		}
		if want := (syntaxError{tt.line, tt.text}); got != want || len(docs) != tt.docs {
			t.Errorf("%.40q: %d documents, %+v, want %d, %+v", tt.in, len(docs), got, tt.docs, want)
		}
	}
}
