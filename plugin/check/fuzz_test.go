package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzObjects changes the objects of testdata/projects, one node for each two bytes of edits, and decides for their pods. No object
// is a fault of the program.
func FuzzObjects(f *testing.F) {
	files, err := filepath.Glob("testdata/projects/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	var texts [][]byte
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		texts = append(texts, text)
		f.Add(uint16(i), []byte{byte(i), byte(i / 7), byte(3 * i), 1, byte(5 * i), 2, byte(i), 3, byte(9 * i), 4})
	}
	f.Fuzz(func(t *testing.T, file uint16, edits []byte) {
		var doc yaml.Node
		if err := yaml.Unmarshal(texts[int(file)%len(texts)], &doc); err != nil {
			t.Fatal(err)
		}
		for edit := range slices.Chunk(edits[:min(len(edits), 64)&^1], 2) {
			change(&doc, int(edit[0]), int(edit[1]))
		}
		text, err := yaml.Marshal(&doc)
		if err != nil {
			t.Skip(err) // such as a mapping with an odd number of nodes
		}
		r := reportOf(t, string(text))
		for _, line := range messages(&r) {
			if strings.Contains(line, "a fault of this program") {
				t.Errorf("%s\n%s", line, text)
			}
		}
	})
}

// change changes a node below n.
func change(n *yaml.Node, which, how int) {
	nodes := nodesBelow(n, nil)
	at, other := nodes[which%len(nodes)], nodes[how%len(nodes)]
	switch how % 8 {
	case 0:
		at.Content = nil
	case 1:
		*at = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: at.Value + "x"}
	case 2:
		*at = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: "5"}
	case 3:
		*at = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case 4:
		*at = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{copyOf(at), copyOf(at)}}
	case 5:
		*at = *copyOf(other)
	case 6:
		if len(at.Content) > 1 {
			at.Content = at.Content[2:]
		}
	case 7:
		for _, child := range at.Content[:len(at.Content)&^1] {
			at.Content = append(at.Content, copyOf(child))
		}
	}
}

// nodesBelow returns the nodes below a node: values, and the keys of mappings.
func nodesBelow(n *yaml.Node, out []*yaml.Node) []*yaml.Node {
	for _, child := range n.Content {
		out = nodesBelow(child, append(out, child))
	}
	if len(out) == 0 {
		out = append(out, n)
	}
	return out
}

func copyOf(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = nil
	for _, child := range n.Content {
		c.Content = append(c.Content, copyOf(child))
	}
	return &c
}
