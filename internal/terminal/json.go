package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"

	"sigs.k8s.io/yaml"
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
	// Other than line ends, such characters occur only within strings.
	for _, r := range doc.String() {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(out, `\u%04x`, r)
		}
	}
	return nil
}

// WriteYAML writes the document of WriteJSON as YAML. If it has a character that cannot be printed, it writes JSON, which is YAML too.
func WriteYAML(out *bytes.Buffer, v any) error {
	text, err := yaml.Marshal(v)
	if err != nil || bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
		return WriteJSON(out, v)
	}
	out.Write(text)
	return nil
}
