package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// WriteJSON writes a JSON document. It escapes all characters that cannot be printed; encoding/json
// escapes only those below U+0020.
func WriteJSON(out *bytes.Buffer, v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	writeEscaped(out, doc.String(), func(r rune) {
		high, low := utf16.EncodeRune(r)
		fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
	})
	return nil
}

// writeEscaped writes a document in which characters that cannot be printed, other than line ends, occur only within quotes. long
// writes one above U+FFFF.
func writeEscaped(out *bytes.Buffer, doc string, long func(rune)) {
	for _, r := range doc {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			long(r)
		default:
			fmt.Fprintf(out, `\u%04x`, r)
		}
	}
}

// WriteYAML writes the document of WriteJSON as YAML.
func WriteYAML(out *bytes.Buffer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	escape := func(doc []byte) *bytes.Buffer {
		var escaped bytes.Buffer
		writeEscaped(&escaped, string(doc), func(r rune) { fmt.Fprintf(&escaped, `\U%08x`, r) })
		return &escaped
	}
	var doc yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(escape(text).Bytes(), &doc); err != nil {
		return err
	}
	setStyle(&doc)
	var quoted bytes.Buffer
	enc := yaml.NewEncoder(&quoted)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return err
	}
	_, err = escape(quoted.Bytes()).WriteTo(out)
	return err
}

// setStyle puts each field on a line. It quotes strings with characters that cannot be printed, and those that YAML 1.1 could take for
// another type, such as "254:1" for a number.
func setStyle(n *yaml.Node) {
	first, _ := utf8.DecodeRuneInString(n.Value)
	isWord := unicode.IsLetter(first) && !slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(n.Value))
	if n.Style = 0; n.Tag == "!!str" && (!isWord || Escape(n.Value) != n.Value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		setStyle(child)
	}
}
