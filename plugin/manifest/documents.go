package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nri-blkio/nri-blkio/policy/quote"
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
			// A Decoder does not set the Offset of a json.SyntaxError to the place in the text: it counts only the bytes of some values.
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

const (
	maxFile  = 32 << 20  // bytes of one file
	maxTotal = 256 << 20 // bytes of the files of a directory
	maxFiles = 10_000    // of a directory
)

// Read reads a manifest in YAML or JSON, with any number of documents. Positions have name
// as the file.
//
// Problems of the content are findings, and all other content is read. Read returns an
// error if in cannot be read, or is larger than 32 MiB.
func Read(in io.Reader, name string) (Set, error) {
	set, _, err := read(in, name, false)
	return set, err
}

func read(in io.Reader, name string, lenient bool) (set Set, size int, _ error) {
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return Set{}, 0, fmt.Errorf("read manifest %s: %w", name, err)
	}
	if len(data) > maxFile {
		return Set{}, 0, fmt.Errorf("read manifest %s: larger than %d MiB", name, maxFile>>20)
	}
	d := document{set: &set, file: name, lenient: lenient, seen: map[Finding]bool{}}
	for _, c := range split(data) {
		docs, problem := c.parse()
		for _, n := range docs {
			d.number++
			d.visits = maxVisits + visitsPerByte*len(c.text)
			d.read(n, "", 0)
		}
		if problem != nil {
			d.number++
			d.object = Object{}
			d.report(problem.line, "", Error, "cannot be parsed: "+quote.ASCII(quote.Clip(problem.text, maxField)))
		}
	}
	slices.SortStableFunc(set.Findings, func(a, b Finding) int { return a.compare(b.Position) })
	return set, len(data), nil
}

// ReadFS reads the files with the suffixes .yaml, .yml and .json in fsys, at any depth, in
// the order of their names. It leaves out names that begin with a dot. Documents without a
// kind, such as a kustomization, are among the others. Positions have paths below name.
//
// The error joins the errors of all files. The set has the content of the other files.
func ReadFS(fsys fs.FS, name string) (Set, error) {
	var set Set
	var errs []error
	files, total := 0, 0
	err := fs.WalkDir(fsys, ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read manifests: %w", err))
			return nil // and the other directories
		case p != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !isManifest(p):
			return nil
		}
		if files++; files > maxFiles {
			return fmt.Errorf("read manifests %s: more than %d files", name, maxFiles)
		}
		found, size, err := readFile(fsys, p, path.Join(name, p))
		if err != nil {
			errs = append(errs, err)
		}
		set.Add(found)
		if total += size; total > maxTotal {
			return fmt.Errorf("read manifests %s: larger than %d MiB", name, maxTotal>>20)
		}
		return nil
	})
	return set, errors.Join(append(errs, err)...)
}

// readFile reads a regular file, or one that a symbolic link leads to: the files of a
// mounted ConfigMap are such links. A FIFO would block.
func readFile(fsys fs.FS, p, name string) (set Set, size int, _ error) {
	info, err := fs.Stat(fsys, p)
	if err != nil {
		return Set{}, 0, fmt.Errorf("read manifest %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return Set{}, 0, nil
	}
	f, err := fsys.Open(p)
	if err != nil {
		return Set{}, 0, fmt.Errorf("read manifest %s: %w", name, err)
	}
	defer f.Close()
	return read(f, name, true)
}

func isManifest(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
