package poddoc

import "github.com/nri-blkio/nri-blkio/plugin/strictjson"

// ErrVersion is the error of a document of another version.
var ErrVersion = strictjson.ErrVersion

// Encode returns the bytes of a document: the same for the same document. A document that
// [Decode] would reject is an error.
func Encode(d *Document) ([]byte, error) {
	return strictjson.EncodeValid(d, MaxSize, d.validate)
}

// Decode decodes a document strictly. It takes the bytes of [Encode] and no others: an unknown,
// misspelled or repeated field, another order, and what exceeds a bound are errors.
func Decode(data []byte) (*Document, error) {
	var d Document
	if err := strictjson.DecodeValid(data, Version, MaxSize, &d, d.validate); err != nil {
		return nil, err
	}
	return &d, nil
}
