package annotation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// parseWeights parses the value of a weight annotation: one weight for all disks, or one for
// each target.
//
//	500
//	/data 500; rootfs 50; * 100
func parseWeights(key, value string) *List {
	if text := strings.TrimSpace(value); len(value) <= MaxValue && !hasTarget(text) {
		return parseWeightOfAll(Origin{Annotation: key}, value, text)
	}
	return parseList(Origin{Annotation: key}, value, "/data 500", (*Entry).parseWeight)
}

// hasTarget reports whether a weight annotation is a list of entries. A single word that is no target is a
// mistyped weight rather than a mistyped target.
func hasTarget(text string) bool {
	return strings.ContainsAny(text, " \t\r\n;") || text == "rootfs" || text != "" && strings.ContainsRune(`*/"@#`, rune(text[0]))
}

// hintWeight is the hint with the form of a weight.
const hintWeight = "write a whole number from 1 to 10000; the default is 100"

// parseWeightOfAll parses the weight for all disks. It is an entry with the target "*" and
// without a number.
func parseWeightOfAll(from Origin, value, text string) *List {
	l := &List{From: from, count: 1}
	weight, ok := weightOf(text)
	switch {
	case text == "":
		l.fail(0, "", &Problem{"the value is empty", "write a whole number from 1 to 10000, or remove the annotation"})
	case !ok:
		l.fail(0, value, &Problem{"invalid weight", hintWeight})
	default:
		l.Entries = []Entry{{Target: Target{Kind: TargetStar, Text: "*"}, Weight: weight, text: text}}
	}
	return l
}

// parseWeight parses "500" after a target.
func (e *Entry) parseWeight(rest string) *Problem {
	word, more := cutWord(rest)
	more = trimBlanks(more)
	weight, ok := weightOf(word)
	switch {
	case word == "":
		return &Problem{"no weight after the target", "write for example " + quote.Text(e.Target.Text+" 500")}
	case !ok:
		return &Problem{"invalid weight " + quote.Text(word), hintWeight}
	case more != "":
		return &Problem{quote.Text(more) + " after the weight", `separate entries by ";"`}
	}
	e.Weight = weight
	return nil
}

func weightOf(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n >= blkio.MinWeight && n <= blkio.MaxWeight
}

// HasStar reports whether an entry has the target "*", or disk:GLOB, which is a "*" for the disks with some
// names. The list may be nil.
func (l *List) HasStar() bool {
	return l != nil && slices.ContainsFunc(l.Entries, func(e Entry) bool { return e.Target.Kind <= TargetDisk })
}
