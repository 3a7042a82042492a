package cluster

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// wire reads messages. The first error ends all reading.
type wire struct{ err error }

// fields yields the fields of a message that have bytes: texts and messages.
func (w *wire) fields(data []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(data) > 0 && w.err == nil {
			num, typ, n := protowire.ConsumeTag(data)
			if n < 0 {
				w.err = protowire.ParseError(n)
				return
			}
			data = data[n:]
			if n = protowire.ConsumeFieldValue(num, typ, data); n < 0 {
				w.err = protowire.ParseError(n)
				return
			}
			if typ == protowire.BytesType {
				if value, _ := protowire.ConsumeBytes(data); !yield(num, value) {
					return
				}
			}
			data = data[n:]
		}
	}
}

// field returns the first field with a number, nil if there is none.
func (w *wire) field(data []byte, want protowire.Number) []byte {
	for num, value := range w.fields(data) {
		if num == want {
			return value
		}
	}
	return nil
}

// isSet reports whether a message has a boolean field that is true.
func (w *wire) isSet(data []byte, want protowire.Number) bool {
	for len(data) > 0 && w.err == nil {
		num, typ, n := protowire.ConsumeField(data)
		if n < 0 {
			w.err = protowire.ParseError(n)
			return false
		}
		if num == want && typ == protowire.VarintType {
			value, _ := protowire.ConsumeVarint(data[protowire.SizeTag(num):])
			return value != 0
		}
		data = data[n:]
	}
	return false
}
