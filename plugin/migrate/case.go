package migrate

import (
	"bytes"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// withCase gives the names of fields the case of the format. The runtimes ignore it, as Go's JSON decoder does. The
// names of classes stay. All lines keep their numbers, for errors.
func withCase(data []byte) []byte {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return data // decoding returns the error
	}
	lines := bytes.SplitAfter(bytes.Clone(data), []byte("\n"))
	fields(doc.Content[0], func(key, classes *yaml.Node) {
		if !rename(lines, key, "Classes") {
			return
		}
		fields(classes, func(_, elements *yaml.Node) {
			for _, e := range elements.Content {
				fields(e, func(key, _ *yaml.Node) {
					rename(lines, key, "Devices", "ThrottleReadBps", "ThrottleWriteBps", "ThrottleReadIOPS", "ThrottleWriteIOPS", "Weight")
				})
			}
		})
	})
	return bytes.Join(lines, nil)
}

// fields calls do for each field of an object.
func fields(object *yaml.Node, do func(key, value *yaml.Node)) {
	if object.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(object.Content); i += 2 {
		do(object.Content[i], object.Content[i+1])
	}
}

// rename writes the one of these names that a key is, apart from its case, in place of the key. It reports whether there is one.
func rename(lines [][]byte, key *yaml.Node, names ...string) bool {
	for _, name := range names {
		if !strings.EqualFold(key.Value, name) {
			continue
		}
		if key.Line > len(lines) {
			return true
		}
		rest := lines[key.Line-1]
		for range key.Column - 1 { // in characters
			_, n := utf8.DecodeRune(rest)
			rest = rest[n:]
		}
		if rest = bytes.TrimLeft(rest, `"'`); len(rest) >= len(name) && strings.EqualFold(string(rest[:len(name)]), name) {
			copy(rest, name)
		}
		return true
	}
	return false
}
