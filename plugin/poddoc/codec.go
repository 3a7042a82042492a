package poddoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// ErrVersion is the error of a document of another version.
var ErrVersion = errors.New("unknown version")

// Encode returns the bytes of a document: the same for the same document. A document that
// [Decode] would reject is an error.
func Encode(d *Document) ([]byte, error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	data, err := encode(d)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%d bytes (maximum %d)", len(data), MaxSize)
	}
	return data, nil
}

// encode returns JSON with sorted keys, one line.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // "<" would take six bytes
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Decode decodes a document strictly. It takes the bytes of [Encode] and no others: an unknown,
// misspelled or repeated field, another order, and what exceeds a bound are errors.
func Decode(data []byte) (*Document, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%d bytes (maximum %d)", len(data), MaxSize)
	}
	var header struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return nil, err
	}
	if header.Version != Version {
		return nil, fmt.Errorf("%w %d (this program knows %d)", ErrVersion, header.Version, Version)
	}
	var d Document
	if strict, err := kjson.UnmarshalStrict(data, &d); err != nil || len(strict) > 0 {
		return nil, errors.Join(append(strict, err)...)
	}
	if err := d.validate(); err != nil {
		return nil, err
	}
	same, err := encode(&d)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(same, data) {
		return nil, errors.New("not in the form in which it is written")
	}
	return &d, nil
}
