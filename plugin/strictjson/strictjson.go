// Package strictjson encodes the documents that the parts of the program exchange. A value has one form, and a reader takes
// no other one.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// ErrVersion is the error of a document of another version.
var ErrVersion = errors.New("unknown version")

// Encode returns JSON with sorted keys, one line: the same bytes for the same value.
func Encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // "<" would take six bytes
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Decode decodes a document whose field "version" has this value. It takes the bytes of [Encode] and no others: an unknown,
// misspelled or repeated field, and another order or notation, are errors. After an error, the content of into is undefined.
func Decode(data []byte, version int, into any) error {
	var header struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return err
	}
	if header.Version != version {
		return fmt.Errorf("%w %d (this program knows %d)", ErrVersion, header.Version, version)
	}
	if strict, err := kjson.UnmarshalStrict(data, into); err != nil || len(strict) > 0 {
		return errors.Join(append(strict, err)...)
	}
	same, err := Encode(into)
	if err != nil {
		return err
	}
	if !bytes.Equal(same, data) {
		return errors.New("not in the form in which it is written")
	}
	return nil
}

// EncodeValid encodes a document that validate accepts, in at most size bytes.
func EncodeValid(v any, size int, validate func() error) ([]byte, error) {
	if err := validate(); err != nil {
		return nil, err
	}
	data, err := Encode(v)
	if err != nil {
		return nil, err
	}
	if err := checkSize(data, size); err != nil {
		return nil, err
	}
	return data, nil
}

// DecodeValid is [Decode] for a document of at most size bytes that validate accepts once it is decoded.
func DecodeValid(data []byte, version, size int, into any, validate func() error) error {
	if err := checkSize(data, size); err != nil {
		return err
	}
	if err := Decode(data, version, into); err != nil {
		return err
	}
	return validate()
}

func checkSize(data []byte, size int) error {
	if len(data) > size {
		return fmt.Errorf("%d bytes (maximum %d)", len(data), size)
	}
	return nil
}
