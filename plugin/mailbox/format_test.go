package mailbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// document is the document of a test.
type document struct {
	Version   int               `json:"version"`
	UID       string            `json:"uid"`
	Namespace string            `json:"namespace"`
	Text      string            `json:"text"`
	Map       map[string]string `json:"map,omitempty"`
}

// errText is the error of a document with this text.
var errText = errors.New("invalid text")

// format returns a format in which the text of a document counts.
func format() Format[document] {
	return Format[document]{
		Version: 1, MaxSize: 512, MaxFiles: 20, MaxKept: 4096,
		Of:   func(d *document) (uid, namespace string) { return d.UID, d.Namespace },
		Size: func(d *document) int { return len(d.Text) },
		Validate: func(d *document) error {
			if d.Text == errText.Error() {
				return errText
			}
			return nil
		},
	}
}

// uidOf returns the UID of a pod. Its first eight characters are the number.
func testUID(n int) string { return fmt.Sprintf("%08d-7a4e-4b0c-9f52-8d1d5f1c2b3a", n) }

// encoded returns the bytes of a document.
func encoded(t testing.TB, d *document) []byte {
	t.Helper()
	data, err := format().Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// has fails the test unless the error has a text, or is nil for "".
func has(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}

func TestIsUID(t *testing.T) {
	uid := testUID(1)
	for s, want := range map[string]bool{
		uid: true, "d41d8cd98f00b204e9800998ecf8427e": true,
		"": false, ".": false, "..": false, "a": false, "../" + uid: false, uid + "/..": false, uid + "\n": false,
		strings.ToUpper(uid): false, uid + ".json": false, strings.Repeat("-", 36): false, uid + "\x00": false,
	} {
		if got := IsUID(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
		if _, got := uidOf(FileName(s)); got != want {
			t.Errorf("name of %q: %t", s, got)
		}
	}
}

// TestJSON verifies that a value has one form, in which no character is larger than it has to be.
func TestJSON(t *testing.T) {
	const want = `{"version":1,"uid":"","namespace":"","text":"<a&b>","map":{"a":"1","b":"2"}}` + "\n"
	for range 10 { // maps have no order
		data, err := JSON(&document{Version: 1, Text: "<a&b>", Map: map[string]string{"b": "2", "a": "1"}})
		if err != nil || string(data) != want {
			t.Fatalf("%s, %v, want %s", data, err, want)
		}
	}
	if _, err := JSON(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

// TestDecode verifies that each other form of a document is an error.
func TestDecode(t *testing.T) {
	const head = `{"version":1,"uid":"u","namespace":"n",`
	for data, want := range map[string]string{
		head + `"text":"a"}` + "\n":                          "",
		head + `"text":"a"}`:                                 "not in the form",
		head + `"text":"\u0061"}` + "\n":                     "not in the form",
		head + `"text":"a","map":{}}` + "\n":                 "not in the form",
		`{"uid":"u","namespace":"n","text":"a","version":1}`: "not in the form",
		head + `"text":"a","x":1}` + "\n":                    `unknown field "x"`,
		head + `"Text":"a"}` + "\n":                          `unknown field "Text"`,
		head + `"text":"a","text":"a"}` + "\n":               "duplicate field",
		head + `"text":5}` + "\n":                            "cannot unmarshal",
		`{"version":2,"new":1}`:                              "unknown version 2 (this program knows 1)",
		`{}`:                                                 "unknown version 0",
		`[]`:                                                 "cannot unmarshal",
		``:                                                   "unexpected end",
		head + `"text":"invalid text"}` + "\n":               "invalid text",
		head + `"text":"` + strings.Repeat("a", 512) + `"}` + "\n": "562 bytes (maximum 512)",
	} {
		d, err := format().Decode([]byte(data))
		has(t, data, err, want)
		if (d != nil && d.Text == "a") != (want == "") {
			t.Errorf("%s: decoded as %+v", data, d)
		}
		if isOther := strings.Contains(want, "unknown version"); errors.Is(err, ErrVersion) != isOther {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// TestEncode verifies that what cannot be read is not written.
func TestEncode(t *testing.T) {
	for text, want := range map[string]string{"a": "", errText.Error(): "invalid text", strings.Repeat("a", 512): "562 bytes (maximum 512)"} {
		data, err := format().Encode(&document{Version: 1, UID: "u", Namespace: "n", Text: text})
		has(t, text, err, want)
		if (data != nil) != (want == "") {
			t.Errorf("encoded as %q", data)
		}
	}
}

// TestFormatRead verifies that a file is read only if it is a document of the pod in its name, also if another process has put
// something else in its place, and that reading waits for nothing.
func TestFormatRead(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	valid := &document{Version: 1, UID: testUID(1), Namespace: "prod", Text: "a"}
	if err := os.WriteFile(secret, encoded(t, valid), 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) func(string) error {
		return func(file string) error { return os.WriteFile(file, data, 0o600) }
	}
	for name, tt := range map[string]struct {
		put  func(file string) error
		want string
	}{
		"valid":     {put(encoded(t, valid)), ""},
		"symlink":   {func(file string) error { return os.Symlink(secret, file) }, "too many levels"},
		"FIFO":      {func(file string) error { return unix.Mkfifo(file, 0o600) }, "not a regular file"},
		"device":    {func(file string) error { return os.Symlink("/dev/zero", file) }, "too many levels"},
		"socket":    {func(file string) error { return unix.Mknod(file, unix.S_IFSOCK|0o600, 0) }, "no such device"},
		"directory": {func(file string) error { return os.Mkdir(file, 0o700) }, "not a regular file"},
		"large":     {put(make([]byte, 513)), "larger than 512 bytes"},
		"sparse":    {func(file string) error { return errors.Join(put(nil)(file), os.Truncate(file, 1<<40)) }, "larger than 512 bytes"},
		"empty":     {put(nil), "unexpected end"},
		"broken":    {put([]byte("{")), "unexpected end"},
		"other pod": {put(encoded(t, &document{Version: 1, UID: testUID(2)})), `uid: invalid value "00000002-`},
		"absent":    {func(string) error { return nil }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tt.put(filepath.Join(dir, FileName(testUID(1)))); err != nil {
				t.Fatal(err)
			}
			d, err := format().Read(dir, testUID(1))
			has(t, "read", err, tt.want)
			if (d != nil) != (tt.want == "") || errors.Is(err, fs.ErrNotExist) != (name == "absent") {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	_, err := format().Read(filepath.Dir(secret), "../"+filepath.Base(secret))
	has(t, "path", err, "uid: invalid value")
}

// FuzzDecode verifies that a document that is accepted is within the bounds, and is written again as it was read.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, &document{Version: 1, UID: testUID(1), Namespace: "prod", Text: "<a>", Map: map[string]string{"b": "\u2028"}}))
	f.Add([]byte(`{"version":1,"uid":"u","namespace":"n","text":"a","map":{"a":null}}` + "\n"))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := format().Decode(data)
		if (d == nil) != (err != nil) {
			t.Fatalf("%v, %v", d, err)
		}
		if err != nil {
			return
		}
		if again, err := format().Encode(d); err != nil || !bytes.Equal(again, data) || len(data) > format().MaxSize {
			t.Errorf("%v: read %q, wrote %q", err, data, again)
		}
	})
}
