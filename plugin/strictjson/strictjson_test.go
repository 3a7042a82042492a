package strictjson

import (
	"errors"
	"strings"
	"testing"
)

type document struct {
	Version int               `json:"version"`
	Text    string            `json:"text"`
	Map     map[string]string `json:"map,omitempty"`
}

// TestEncode verifies that a value has one form, in which no character is larger than it has to be.
func TestEncode(t *testing.T) {
	const want = `{"version":1,"text":"<a&b>","map":{"a":"1","b":"2"}}` + "\n"
	for range 10 { // maps have no order
		data, err := Encode(&document{1, "<a&b>", map[string]string{"b": "2", "a": "1"}})
		if err != nil || string(data) != want {
			t.Fatalf("%s, %v, want %s", data, err, want)
		}
	}
	if _, err := Encode(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

// TestDecode verifies that each other form of a value is an error.
func TestDecode(t *testing.T) {
	for data, want := range map[string]string{
		`{"version":1,"text":"a"}` + "\n":            "",
		`{"version":1,"text":"a"}`:                   "not in the form",
		`{"version":1,"text":"\u0061"}` + "\n":       "not in the form",
		`{"version":1,"text":"a","map":{}}` + "\n":   "not in the form",
		`{"text":"a","version":1}` + "\n":            "not in the form",
		`{"version":1,"text":"a","x":1}` + "\n":      `unknown field "x"`,
		`{"version":1,"Text":"a"}` + "\n":            `unknown field "Text"`,
		`{"version":1,"text":"a","text":"a"}` + "\n": "duplicate field",
		`{"version":1,"text":5}` + "\n":              "cannot unmarshal",
		`{"version":2,"new":1}`:                      "unknown version 2 (this program knows 1)",
		`[]`:                                         "cannot unmarshal",
		``:                                           "unexpected end",
	} {
		var d document
		err := Decode([]byte(data), 1, &d)
		if want == "" && (err != nil || d.Text != "a") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
		if isOther := strings.Contains(want, "unknown version"); errors.Is(err, ErrVersion) != isOther {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// TestValid verifies that both directions ask for the size and the content.
func TestValid(t *testing.T) {
	errContent := errors.New("content")
	const text = `{"version":1,"text":"a"}` + "\n"
	for name, tt := range map[string]struct {
		size  int
		valid error
		want  string
	}{
		"both are right": {len(text), nil, ""},
		"too large":      {len(text) - 1, nil, "25 bytes (maximum 24)"},
		"invalid":        {len(text), errContent, "content"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := EncodeValid(&document{Version: 1, Text: "a"}, tt.size, func() error { return tt.valid })
			if got := textOf(err); got != tt.want || (string(data) == text) != (tt.want == "") {
				t.Errorf("encoded as %q, error %q, want the error %q", data, got, tt.want)
			}
			var d document
			err = DecodeValid([]byte(text), 1, tt.size, &d, func() error {
				if d.Text != "a" {
					t.Errorf("validated before it was decoded: %+v", d)
				}
				return tt.valid
			})
			if got := textOf(err); got != tt.want {
				t.Errorf("decoded with the error %q, want %q", got, tt.want)
			}
		})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
